"""B7, the matching loss: what its fits keep, when they converge, and what a family without c* costs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import (
    Case,
    any_start,
    continuing,
    relative,
    skewed,
    with_transient,
)
from covshift.rules import EXPONENTIAL, LINKS, SAFE, Link
from covshift.theory import (
    BellmanOperator,
    CopOperator,
    FiniteMDP,
    MatchingOperator,
    ProjectedOperator,
    fit_matching,
    kl_divergence,
    mean_ratio_bounds,
    project_matching,
    reset_margin,
    spectral_radius,
)
from covshift.theory.examples import Problem
from covshift.validation import Dense, Vector

NUM_FITS = 10
"""How many fits in a row are checked."""


def _positive(case: Case) -> Vector:
    """A random positive vector over states."""
    return np.exp(case.rng.uniform(0.1, 2.0) * case.vector())


def _random_matching(case: Case, operator: CopOperator) -> MatchingOperator:
    """Random features with a bias, either link, with or without the floor."""
    link = list(LINKS.values())[case.rng.integers(len(LINKS))]
    return MatchingOperator(
        operator, case.features(bias=True), link, floored=case.rng.random() < 0.5
    )


def _fits(matching: MatchingOperator, start: Vector, num_fits: int = NUM_FITS) -> list[Vector]:
    """The start and the fits that follow it."""
    iterates = [start]
    for _ in range(num_fits):
        iterates.append(matching.apply(iterates[-1]))
    return iterates


def _some_discount(case: Case) -> float:
    """The case's γ̂, or 1 in a third of the cases."""
    return 1.0 if case.rng.random() < 1 / 3 else case.ratio_discount


def _mean_kept(case: Case, problem: Problem) -> float:
    """How far E_μ[ĉ] strays from 1 over the fits."""
    matching = _random_matching(case, problem.cop.discounted(_some_discount(case)))
    start = _positive(case)
    iterates = _fits(matching, start / float(problem.d_mu @ start))
    return max(abs(float(problem.d_mu @ c) - 1.0) for c in iterates)


def _mean_without_bias(case: Case) -> float:
    """The same with a random feature in place of the bias."""
    operator, d_mu, phi = (
        case.problem.cop.discounted(0.9),
        case.problem.d_mu,
        case.features(bias=False),
    )
    c = np.ones(len(d_mu))
    for _ in range(NUM_FITS):
        c = project_matching(operator.apply(c), phi, d_mu)
    return abs(float(d_mu @ c) - 1.0)


def _stream_mean(problem: Problem, x: Vector) -> float:
    """E_μ̄[x] over the states of a stream of episodes."""
    return float(problem.d_mu @ x / problem.d_mu.sum())


def _balance_of_visits(case: Case) -> float:
    """E[ĉ] of one fit against E[b] + γ̂(E[c] - E[ρc; ends]), relative."""
    problem, gamma, c = case.problem, _some_discount(case), _positive(case)
    link = list(LINKS.values())[case.rng.integers(len(LINKS))]
    target = problem.cop.discounted(gamma).apply(c)
    fitted = project_matching(target, case.features(bias=True), problem.d_mu, link)
    stays = np.asarray(problem.chain_pi.p.sum(axis=1)).ravel()
    enters = mean_ratio_bounds(gamma, 1.0 / float(problem.d_mu.sum()))[0]
    expected = enters + gamma * _stream_mean(problem, c * stays)
    return abs(_stream_mean(problem, fitted) - expected) / max(1.0, expected)


def _bounds_of_visits(case: Case) -> float:
    """How far E[ĉ] leaves the two bounds of B6 over the fits from c = 1, relative to the upper one."""
    problem, gamma = case.problem, case.ratio_discount
    matching = _random_matching(case, problem.cop.discounted(gamma))
    low, high = mean_ratio_bounds(gamma, 1.0 / float(problem.d_mu.sum()))
    means = [_stream_mean(problem, c) for c in _fits(matching, np.ones(len(problem.d_mu)))]
    return max(max(means) - high, low - min(means)) / high


def _contraction(case: Case) -> float:
    """D(Y_γ̂x‖Y_γ̂y) - γ̂D(x‖y), over 1 + D(x‖y)."""
    problem, gamma = case.problem, case.ratio_discount
    operator, x, y = problem.cop.discounted(gamma), _positive(case), _positive(case)
    before = kl_divergence(x, y, problem.d_mu)
    after = kl_divergence(operator.apply(x), operator.apply(y), problem.d_mu)
    return (after - gamma * before) / (1.0 + before)


def _squared_contraction(case: Case) -> float:
    """‖Y_γ̂x - Y_γ̂y‖²/‖x - y‖² in d_μ, minus γ̂."""
    operator, d_mu = case.problem.cop.discounted(0.99), case.problem.d_mu
    x, y = _positive(case), _positive(case)
    after = float(d_mu @ (operator.apply(x) - operator.apply(y)) ** 2)
    return after / float(d_mu @ (x - y) ** 2) - 0.99


def _pythagoras(case: Case, link: Link) -> float:
    """|D(T‖c_θ) - D(T‖ĉ) - D(ĉ‖c_θ)| for the fit ĉ to random targets T, over 1 + D(T‖c_θ)."""
    d_mu, phi, target = case.problem.d_mu, case.features(bias=True), _positive(case)
    fitted = project_matching(target, phi, d_mu, link)
    member = link.ratio(phi @ case.rng.standard_normal(phi.shape[1]))
    if min(fitted.min(), member.min()) == 0.0:  # A score so low that its ratio is rounded to 0.
        return 0.0
    whole = kl_divergence(target, member, d_mu)
    parts = kl_divergence(target, fitted, d_mu) + kl_divergence(fitted, member, d_mu)
    return abs(whole - parts) / (1.0 + whole)


def _family_with(case: Case, score: Vector) -> Dense:
    """Features whose span holds the score: a bias, the score and up to two random ones."""
    extra = int(case.rng.integers(0, 3))
    return np.column_stack(
        [np.ones(len(score)), score, case.rng.standard_normal((len(score), extra))]
    )


def _linear_convergence(case: Case) -> float:
    """The largest D(ĉ_{k+1}‖c*) - γ̂D(ĉ_k‖c*) over the fits, over 1 + the first D."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    matching = MatchingOperator(problem.cop.discounted(gamma), _family_with(case, np.log(c)))
    steps = [kl_divergence(x, c, problem.d_mu) for x in _fits(matching, _positive(case))]
    return _worst_step(steps, gamma)


def _floored_convergence(case: Case) -> float:
    """The same for x = (ĉ - (1 - γ̂))/γ̂, and by how much ĉ falls below 1 - γ̂."""
    problem, gamma = case.problem, case.ratio_discount
    arrivals = problem.cop.apply(case.c)
    phi = _family_with(case, np.log(arrivals))
    matching = MatchingOperator(problem.cop.discounted(gamma), phi, floored=True)
    iterates = _fits(matching, 1.0 - gamma + gamma * _positive(case))
    steps = [
        kl_divergence(np.maximum(c - (1.0 - gamma), 0.0) / gamma, arrivals, problem.d_mu)
        for c in iterates
    ]
    return max(_worst_step(steps, gamma), 1.0 - gamma - float(np.min(iterates)))


def _averaged_convergence(case: Case) -> float:
    """The largest D(ĉ_{k+1}‖c*) - (1 - ω(1 - γ̂))D(ĉ_k‖c*) with averaged targets, and the drift of the mean."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    share, start = case.rng.uniform(0.05, 1.0), _positive(case)
    phi = _family_with(case, np.log(c))
    matching = MatchingOperator(problem.cop.discounted(gamma), phi, averaging=share)
    iterates = _fits(matching, start / float(problem.d_mu @ start))
    steps = [kl_divergence(x, c, problem.d_mu) for x in iterates]
    drift = max(abs(float(problem.d_mu @ x) - 1.0) for x in iterates)
    return max(_worst_step(steps, 1.0 - share * (1.0 - gamma)), drift)


def _worst_step(divergences: list[float], factor: float) -> float:
    worst = max(after - factor * before for before, after in pairwise(divergences))
    return worst / (1.0 + divergences[0])


def teleport(p_pi: ArrayLike, d_mu: ArrayLike) -> Problem:
    """The MDP in which each action leads to the state of its number: π and μ choose the next state.

    π moves by any given chain, and μ draws each state from d_μ, which so is its stationary distribution.
    """
    p_pi = np.array(p_pi, dtype=np.float64)
    size = len(p_pi)
    mdp = FiniteMDP(np.tile(np.eye(size), (size, 1, 1)), np.zeros((size, size)))
    return Problem(mdp, p_pi, np.tile(np.asarray(d_mu, dtype=np.float64), (size, 1)))


def attractors() -> Problem:
    """State 0 absorbs, and 1 nearly: 2 and 3 lead to 0 and 1 nine times in ten. d_μ is mostly on 2 and 3.

    With the features 1, c and log c at γ̂ = 0.99, whose span holds both the ratio and its logarithm, the projected
    operator of the squared loss has the eigenvalue 1.29.
    """
    p_pi = np.array([[1.0, 0, 0, 0], [0, 0.9, 0, 0.1], [0.9, 0, 0, 0.1], [0.1, 0.9, 0, 0]])
    return teleport(p_pi, [0.1, 0.1, 0.4, 0.4])


def pair_and_sink() -> Problem:
    """States 1 and 2 lead to each other, 0 and 3 to 3.

    At γ̂ = 0.99 the derivative of the safe link's fit at c has the eigenvalue -1.1: the safe link weighs states above 1 as
    the squared loss does, and not by their ratio.
    """
    return teleport(np.eye(4)[[3, 2, 1, 3]], [0.2, 0.5, 0.05, 0.25])


def fork() -> Problem:
    """Four states on a line: the inner ones lead to the outer one of their side, which absorbs."""
    return teleport(np.eye(4)[[0, 0, 3, 3]], [0.05, 0.45, 0.45, 0.05])


def swap() -> Problem:
    """Four states on a line: each leads to the outer state of the other side."""
    return teleport(np.eye(4)[[3, 3, 0, 0]], [0.05, 0.45, 0.45, 0.05])


def line() -> Dense:
    """A bias and the position of the four states."""
    return np.column_stack([np.ones(4), [-3.0, -1.0, 1.0, 3.0]])


def detour(rare: float) -> Problem:
    """State 0 absorbs; 1, of mass η = `rare`, leads to 2, of mass η³, which leads to 0."""
    return teleport(np.eye(3)[[0, 2, 0]], [1.0 - rare - rare**3, rare, rare**3])


def _squared_loss(problem: Problem) -> float:
    """Radius of the projected operator minus 1, with the ratio and its logarithm in the span."""
    projected = ProjectedOperator(
        problem.cop.discounted(0.99), _ratio_and_logarithm(problem), problem.d_mu
    )
    return spectral_radius(projected.on_weights()) - 1.0


def _matched_there(problem: Problem) -> float:
    """How far fits by the matching loss with the same features come to rest from the ratio."""
    matching = MatchingOperator(problem.cop.discounted(0.99), _ratio_and_logarithm(problem))
    c = problem.c_star(0.99)
    return relative(matching.fixed_point() - c, c)


def _ratio_and_logarithm(problem: Problem) -> Dense:
    c = problem.c_star(0.99)
    return np.column_stack([np.ones(len(c)), c, np.log(c)])


def _safe_link(problem: Problem) -> float:
    """How far the 300th fit is from a ratio that the safe link's family holds."""
    c = problem.c_star(0.99)
    score = np.where(c < 1.0, np.log(c), c - 1.0)
    phi = np.column_stack([np.ones(len(c)), score])
    matching = MatchingOperator(problem.cop.discounted(0.99), phi, SAFE)
    return float(np.abs(_fits(matching, np.ones(len(c)), 300)[-1] - c).max())


def _undiscounted(case: Case) -> float:
    """At γ̂ = 1 with log(d_π/d_μ) in the family: no step away from it, and rest at it."""
    problem = case.problem
    c, start = problem.c_star(), _positive(case)
    start = start / float(problem.d_mu @ start)
    matching = MatchingOperator(problem.cop.discounted(1.0), _family_with(case, np.log(c)))
    steps = [kl_divergence(x, c, problem.d_mu) for x in _fits(matching, start)]
    return max(_worst_step(steps, 1.0), relative(matching.fixed_point(start) - c, c))


def _periodic(case: Case) -> float:
    """How far the fits stay from 1 on a 2-cycle with d_μ uniform, whose every ratio is in the family."""
    problem = teleport([[0, 1], [1, 0]], [0.5, 0.5])
    matching = MatchingOperator(problem.cop.discounted(1.0), np.eye(2))
    return float(np.abs(_fits(matching, np.array([0.5, 1.5]), 1000)[-1] - 1.0).max())


def _settled(matching: MatchingOperator, start: Vector | None = None) -> Vector | None:
    """Where the fits come to rest, or None where they do not within 300."""
    try:
        return matching.fixed_point(start, max_steps=300)
    except ValueError:
        return None


def _stationary_moments(case: Case) -> float:
    """By how much a step of π moves the mean features of the law d_μĉ at which fits come to rest."""
    problem, phi = case.problem, case.features(bias=True)
    c = _settled(MatchingOperator(problem.cop.discounted(1.0), phi))
    if c is None:
        return 0.0
    law = problem.d_mu * c
    return relative(phi.T @ (problem.chain_pi.push(law) - law), phi)


def _like_td(case: Case) -> float:
    """A small step away from the fixed point, after a fit, against the derivative and TD's eigenvalues."""
    problem, gamma, phi = case.problem, case.ratio_discount, case.features(bias=True)
    matching = MatchingOperator(problem.cop.discounted(gamma), phi)
    c = _settled(matching)
    if c is None:
        return 0.0
    size = 1e-6
    derivative, aside = matching.on_weights(c), case.rng.standard_normal(phi.shape[1])
    aside = aside / np.abs(phi @ aside).max()
    theta = fit_matching(c, phi, problem.d_mu)
    moved = np.log(matching.apply(np.exp(phi @ (theta + size * aside)))) - np.log(c)
    bellman = BellmanOperator(problem.chain_pi, np.zeros(len(c)), gamma)
    td = ProjectedOperator(bellman, phi, problem.d_mu * c).on_weights()
    return max(
        relative(moved / size - phi @ derivative @ aside, phi @ derivative @ aside),
        abs(spectral_radius(td) - spectral_radius(derivative)),
    )


def _aggregation(case: Case) -> float:
    """D of the fits to Y_γ̂x and Y_γ̂y minus γ̂D(x‖y), where the features are cells of states."""
    problem, gamma = case.problem, case.ratio_discount
    size = len(problem.d_mu)
    cells = case.rng.integers(0, max(1, size // 2), size)
    matching = MatchingOperator(
        problem.cop.discounted(gamma), np.eye(size)[:, np.unique(cells)][cells]
    )
    x, y = _positive(case), _positive(case)
    before = kl_divergence(x, y, problem.d_mu)
    after = kl_divergence(matching.apply(x), matching.apply(y), problem.d_mu)
    return (after - gamma * before) / (1.0 + before)


def _several_limits(problem: Problem) -> float:
    """How far apart fits come to rest that start on either side."""
    matching = MatchingOperator(problem.cop.discounted(0.9), line())
    left, right = (_settled(matching, np.exp(side * line()[:, 1])) for side in (-0.1, 0.1))
    assert left is not None
    assert right is not None
    return float(np.abs(left - right).max())


def _cycle(problem: Problem, averaging: float = 1.0) -> float:
    """The change of the 500th fit."""
    matching = MatchingOperator(problem.cop.discounted(0.9), line(), averaging=averaging)
    last = _fits(matching, np.exp(0.1 * line()[:, 1]), 500)[-2:]
    return float(np.abs(last[1] - last[0]).max())


def _misspecified(case: Case) -> float:
    """D(ĉ_{k+1}‖c_θ) - γ̂D(ĉ_k‖c_θ) - b over the fits, and b against its bound; c_θ is the member nearest to c*."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    phi, operator = case.features(bias=True), problem.cop.discounted(gamma)
    member = project_matching(c, phi, problem.d_mu)
    b = float(np.log(operator.apply(member) / member).max())
    start = _positive(case)
    iterates = _fits(MatchingOperator(operator, phi), start / float(problem.d_mu @ start))
    steps = [kl_divergence(x, member, problem.d_mu) for x in iterates]
    worst = max(after - gamma * before for before, after in pairwise(steps)) - b
    return max(worst / (1.0 + steps[0]), b - 2.0 * float(np.abs(np.log(member / c)).max()))


def _bounded_by_nearest(problem: Problem) -> float:
    """D(c‖ĉ) over the least D(c‖c_θ) of the family, minus 1/(1 - γ̂), at γ̂ = ½."""
    operator, d_mu = problem.cop.discounted(0.5), problem.d_mu
    phi, c = np.column_stack([np.ones(3), [0.0, 1.0, 3.0]]), problem.c_star(0.5)
    fitted = MatchingOperator(operator, phi).fixed_point()
    nearest = project_matching(c, phi, d_mu)
    return kl_divergence(c, fitted, d_mu) / kl_divergence(c, nearest, d_mu) - 2.0


def _nearly_in_family(case: Case) -> float:
    """D(c‖ĉ)/min D(c‖c_θ) over 1/(1 - γ̂(1 - κ)), minus 1, for a family that misses log c by 10⁻⁴."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    missed = case.vector()
    phi = np.column_stack([np.ones(len(c)), np.log(c) - 1e-4 * missed / np.abs(missed).max()])
    nearest = kl_divergence(c, project_matching(c, phi, problem.d_mu), problem.d_mu)
    fitted = _settled(MatchingOperator(problem.cop.discounted(gamma), phi), c)
    if (
        fitted is None or nearest < 1e-11
    ):  # Nothing to compare: the family holds c but for rounding.
        return -1.0
    margin = 1.0 - gamma * (1.0 - reset_margin(c, gamma))
    return kl_divergence(c, fitted, problem.d_mu) / nearest * margin - 1.0


RANDOM = cases.RANDOM + ", γ̂ < 1"
WITH_BIAS = ", random features with a bias"
ANY_LINK = ", exponential or safe link, with or without the floor"

CLAIMS: list[Claim[Any]] = [
    Claim(
        "B7-balance",
        f"Fits with a bias keep the mean: E_μ[ĉ] = 1 for {NUM_FITS} fits in a row, for every γ̂ ≤ 1 and every link.",
        cases.RANDOM + WITH_BIAS + ANY_LINK + ", γ̂ = 1 in a third",
        continuing,
        lambda case: _mean_kept(case, case.problem),
        cases=100,
        broken_by="B7-balance-needs-bias",
    ),
    Claim(
        "B7-balance-needs-bias",
        "Refuted: so do fits without a bias.",
        cases.RANDOM + ", random features without a bias, γ̂ = 0.9",
        continuing,
        _mean_without_bias,
        refutes=True,
        tolerance=1e-1,
        cases=30,
    ),
    Claim(
        "B7-balance-restart",
        "So it is with restarts.",
        cases.ANY_START + WITH_BIAS + ANY_LINK + ", γ̂ = 1 in a third",
        any_start,
        lambda case: _mean_kept(case, case.problem.restart()),
        cases=100,
        broken_by="B7-balance-needs-bias",
    ),
    Claim(
        "B7-balance-visits",
        "Counting visits, a fit to the targets of c has E[ĉ] = 1 - γ̂ + γ̂p₀ + γ̂(E[c] - E[ρc; ends]), for every γ̂ ≤ 1.",
        cases.ANY_START + WITH_BIAS + ", γ̂ = 1 in a third",
        any_start,
        _balance_of_visits,
        broken_by="B7-balance-needs-bias",
    ),
    Claim(
        "B7-bounded-mean",
        "So every fit has both bounds of B6, 1 - γ̂ + γ̂p₀ ≤ E[ĉ] ≤ 1 + γ̂p₀/(1 - γ̂), whatever the features.",
        cases.ANY_START + WITH_BIAS + ANY_LINK + ", γ̂ < 1",
        any_start,
        _bounds_of_visits,
        cases=100,
        broken_by="B6-fitted-bound",
    ),
    Claim(
        "B7-contraction",
        "D(Y_γ̂x‖Y_γ̂y) ≤ γ̂D(x‖y) for all positive x and y, under plain d_μ.",
        RANDOM + ", π with or without a transient state",
        with_transient,
        _contraction,
        broken_by="B7-contraction-squared",
    ),
    Claim(
        "B7-contraction-visits",
        "The same for eq. (11), counting visits.",
        cases.ANY_START + ", γ̂ < 1",
        any_start,
        _contraction,
        broken_by="B7-contraction-squared",
    ),
    Claim(
        "B7-contraction-squared",
        "Refuted: so does the squared distance under d_μ.",
        cases.SKEWED + ", γ̂ = 0.99",
        skewed,
        _squared_contraction,
        refutes=True,
        tolerance=1e-1,
    ),
    Claim(
        "B7-pythagoras",
        "D(T‖c_θ) = D(T‖ĉ) + D(ĉ‖c_θ) for the fit ĉ to T and every c_θ = exp(Φθ).",
        cases.RANDOM + ", random features, targets and θ",
        continuing,
        lambda case: _pythagoras(case, EXPONENTIAL),
        broken_by="B7-pythagoras-safe",
    ),
    Claim(
        "B7-pythagoras-safe",
        "Refuted: so it is with the safe link.",
        cases.RANDOM + ", random features, targets and θ",
        continuing,
        lambda case: _pythagoras(case, SAFE),
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "B7-linear-convergence",
        "Where the family holds c* = d̂_π/d_μ, D(ĉ_{k+1}‖c*) ≤ γ̂D(ĉ_k‖c*), from every positive start.",
        RANDOM + ", log c* in the span",
        continuing,
        _linear_convergence,
        cases=100,
        broken_by="B7-safe-link",
    ),
    Claim(
        "B7-floor",
        "So it is for x where c = 1 - γ̂ + γ̂x and the family holds x*; and ĉ ≥ 1 - γ̂.",
        RANDOM + ", log x* in the span",
        continuing,
        _floored_convergence,
        cases=100,
        broken_by="B7-safe-link",
    ),
    Claim(
        "B7-safe-link",
        "Refuted: so do fits with the safe link whose family holds c*. Here they cycle around it.",
        "two states that lead to each other, and a sink with a way in; γ̂ = 0.99",
        lambda rng: pair_and_sink(),
        _safe_link,
        refutes=True,
        tolerance=1.0,
        cases=1,
    ),
    Claim(
        "B7-squared-loss",
        "Refuted: fits by squared loss converge where the ratio is in the span. Here an eigenvalue is 1.29.",
        "two absorbing states and two that lead there; features 1, c and log c; γ̂ = 0.99",
        lambda rng: attractors(),
        _squared_loss,
        refutes=True,
        tolerance=0.2,
        cases=1,
    ),
    Claim(
        "B7-matched-there",
        "The matching loss with the same features on the same problem converges to the ratio.",
        "two absorbing states and two that lead there; features 1, c and log c; γ̂ = 0.99",
        lambda rng: attractors(),
        _matched_there,
        cases=1,
        broken_by="B7-squared-loss",
    ),
    Claim(
        "B7-undiscounted",
        "At γ̂ = 1 fits whose family holds d_π/d_μ never step away from it in D, and converge to it, where π's chain is aperiodic.",
        cases.RANDOM + ", log(d_π/d_μ) in the span, γ̂ = 1",
        continuing,
        _undiscounted,
        cases=100,
        broken_by="B7-undiscounted-periodic",
    ),
    Claim(
        "B7-undiscounted-periodic",
        "Refuted: they converge on periodic chains too.",
        "two states that lead to each other, one-hot features",
        lambda rng: None,
        _periodic,
        refutes=True,
        tolerance=0.1,
        cases=1,
    ),
    Claim(
        "B7-stationary-moments",
        "Where fits at γ̂ = 1 come to rest, a step of π leaves the mean features of the law d_μĉ as they are.",
        cases.RANDOM + WITH_BIAS + ", γ̂ = 1",
        continuing,
        _stationary_moments,
        cases=100,
    ),
    Claim(
        "B7-like-td",
        "Near a fixed point ĉ the fits have the eigenvalues of TD(0) with the same features and discount γ̂ under d_μĉ.",
        RANDOM + WITH_BIAS,
        continuing,
        _like_td,
        tolerance=1e-3,
        cases=100,
    ),
    Claim(
        "B7-aggregation",
        "Where the features are cells of states, fits contract, D(ΠY_γ̂x‖ΠY_γ̂y) ≤ γ̂D(x‖y): one limit, whatever c* is.",
        RANDOM + ", random cells",
        continuing,
        _aggregation,
        broken_by="B7-several-limits",
    ),
    Claim(
        "B7-several-limits",
        "Refuted: fits by other features have one limit. Here it depends on the start.",
        "four states on a line, inner ones lead to the outer one of their side; a bias and the position; γ̂ = 0.9",
        lambda rng: fork(),
        _several_limits,
        refutes=True,
        tolerance=1.0,
        cases=1,
    ),
    Claim(
        "B7-cycle",
        "Refuted: fits converge for every γ̂ < 1 where the family does not hold c*. Here they cycle, bounded.",
        "four states on a line that lead to the outer one of the other side; a bias and the position; γ̂ = 0.9",
        lambda rng: swap(),
        _cycle,
        refutes=True,
        tolerance=1.0,
        cases=1,
    ),
    Claim(
        "B7-averaging",
        "Targets averaged with the ratio before, (1 - ω)ĉ_k + ωY_γ̂ĉ_k, keep the mean too, and where the family holds c* "
        "D(ĉ_{k+1}‖c*) ≤ (1 - ω(1 - γ̂))D(ĉ_k‖c*).",
        RANDOM + ", log c* in the span, 0.05 ≤ ω ≤ 1",
        continuing,
        _averaged_convergence,
        cases=100,
        broken_by="B7-safe-link",
    ),
    Claim(
        "B7-averaging-stops-cycle",
        "On the problem of B7-cycle fits to targets averaged half and half come to rest.",
        "four states on a line that lead to the outer one of the other side; a bias and the position; γ̂ = 0.9, ω = ½",
        lambda rng: swap(),
        lambda problem: _cycle(problem, averaging=0.5),
        cases=1,
        broken_by="B7-cycle",
    ),
    Claim(
        "B7-misspecified",
        "D(ĉ_{k+1}‖c_θ) ≤ γ̂D(ĉ_k‖c_θ) + b with b = max log(Y_γ̂c_θ/c_θ) ≤ 2 max |log(c_θ/c*)|, for every c_θ of mean 1: "
        "in the end D(ĉ‖c_θ) ≤ b/(1 - γ̂), whether fits converge or not.",
        RANDOM + WITH_BIAS + "; c_θ nearest to c*",
        continuing,
        _misspecified,
        cases=100,
        broken_by="B7-misspecified-divergence",
    ),
    Claim(
        "B7-misspecified-divergence",
        "Refuted: D(c*‖ĉ) ≤ min_θ D(c*‖c_θ)/(1 - γ̂), or any other multiple that depends on γ̂ alone.",
        "a sink, and a rare state that leads there by a much rarer one; γ̂ = ½",
        lambda rng: detour(1e-4),
        _bounded_by_nearest,
        refutes=True,
        tolerance=500.0,
        cases=1,
    ),
    Claim(
        "B7-nearly-in-family",
        "As the family comes near to c*, D(c*‖ĉ) is at most min_θ D(c*‖c_θ)/(1 - γ̂(1 - κ)).",
        RANDOM + ", a family that misses log c* by 10⁻⁴",
        continuing,
        _nearly_in_family,
        tolerance=1e-2,
        broken_by="B7-misspecified-divergence",
    ),
]
