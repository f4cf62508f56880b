"""B7, the matching loss: what its fits keep, and their convergence where the family holds the ratio.

A fit is an exact minimum of the matching loss; its family is all ratios g(Φθ) of the features Φ and the link g.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import (
    ANY_START,
    SKEWED,
    Case,
    any_start,
    continuing,
    relative,
    skewed,
    with_transient,
)
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.rules import EXPONENTIAL, LINKS, SAFE, Link
from covshift.theory import (
    CopOperator,
    FiniteMDP,
    MatchingOperator,
    ProjectedOperator,
    kl_divergence,
    mean_ratio_bounds,
    project_matching,
    spectral_radius,
)
from covshift.theory.examples import Problem
from covshift.validation import Dense, Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
NUM_FITS = 10
"""How many fits in a row are checked."""
RANDOM = cases.RANDOM + ", γ̂ < 1"
WITH_BIAS = ", random features with a bias"
ANY_LINK = f", exponential or safe link, with or without the floor, {NUM_FITS} fits in a row"
ANY_DISCOUNT = ", γ̂ = 1 in a third"
ATTRACTORS = "two absorbing states and two that lead there; features 1, c* and log c*; γ̂ = 0.99"


def positive(case: Case) -> Vector:
    """A random positive vector over states."""
    return np.exp(case.rng.uniform(0.1, 2.0) * case.vector())


def mean_one(case: Case, d_mu: Vector) -> Vector:
    """A random positive ratio with E_μ[c] = 1."""
    start = positive(case)
    return start / float(d_mu @ start)


def fits(matching: MatchingOperator, start: Vector, num_fits: int = NUM_FITS) -> list[Vector]:
    """The start and the fits that follow it."""
    iterates = [start]
    for _ in range(num_fits):
        iterates.append(matching.apply(iterates[-1]))
    return iterates


def family_with(case: Case, score: Vector) -> Dense:
    """Features whose span holds the score: a bias, the score and up to two random ones."""
    extra = int(case.rng.integers(0, 3))
    return np.column_stack(
        [np.ones(len(score)), score, case.rng.standard_normal((len(score), extra))]
    )


def worst_step(divergences: list[float], factor: float) -> float:
    """The largest D_{k+1} - factor · D_k, over 1 + D_0."""
    worst = max(after - factor * before for before, after in pairwise(divergences))
    return worst / (1.0 + divergences[0])


def excess_divergence(x: Vector, y: Vector, fx: Vector, fy: Vector, case: Case) -> float:
    """D(fx‖fy) - γ̂D(x‖y), over 1 + D(x‖y)."""
    before = kl_divergence(x, y, case.problem.d_mu)
    after = kl_divergence(fx, fy, case.problem.d_mu)
    return (after - case.ratio_discount * before) / (1.0 + before)


def mean_drift(iterates: list[Vector], d_mu: Vector) -> float:
    """How far E_μ[c] strays from 1."""
    return max(abs(float(d_mu @ c) - 1.0) for c in iterates)


def teleport(p_pi: ArrayLike, d_mu: ArrayLike) -> Problem:
    """The MDP in which each action leads to the state of its number, so that a policy chooses the next state.

    π moves by any given chain. μ draws every state from d_μ, which is therefore its stationary distribution.
    """
    p_pi = np.array(p_pi, dtype=np.float64)
    size = len(p_pi)
    mdp = FiniteMDP(np.tile(np.eye(size), (size, 1, 1)), np.zeros((size, size)))
    return Problem(mdp, p_pi, np.tile(np.asarray(d_mu, dtype=np.float64), (size, 1)))


def attractors() -> Problem:
    """State 0 absorbs, and 1 nearly: 2 and 3 lead to 0 and 1 nine times in ten. d_μ is mostly on 2 and 3.

    With the features 1, c* and log c* at γ̂ = 0.99, whose span holds both the ratio and its logarithm, the projected
    operator of the squared loss has the eigenvalue 1.29.
    """
    p_pi = np.array([[1.0, 0, 0, 0], [0, 0.9, 0, 0.1], [0.9, 0, 0, 0.1], [0.1, 0.9, 0, 0]])
    return teleport(p_pi, [0.1, 0.1, 0.4, 0.4])


def pair_and_sink() -> Problem:
    """States 1 and 2 lead to each other, 0 and 3 to 3.

    At γ̂ = 0.99 the derivative of the safe link's fit at c* has the eigenvalue -1.1: the safe link weighs states above 1
    as the squared loss does, and not by their ratio.
    """
    return teleport(np.eye(4)[[3, 2, 1, 3]], [0.2, 0.5, 0.05, 0.25])


def two_cycle() -> Problem:
    """Two states that lead to each other, d_μ uniform."""
    return teleport([[0, 1], [1, 0]], [0.5, 0.5])


def _random_matching(case: Case, operator: CopOperator) -> MatchingOperator:
    """Random features with a bias, either link, with or without the floor."""
    link = _random_link(case)
    return MatchingOperator(
        operator, case.features(bias=True), link, floored=case.rng.random() < 0.5
    )


def _random_link(case: Case) -> Link:
    return list(LINKS.values())[case.rng.integers(len(LINKS))]


def _any_discount(case: Case) -> float:
    """The case's γ̂, or 1 in a third of the cases."""
    return 1.0 if case.rng.random() < 1 / 3 else case.ratio_discount


def _mean_kept(case: Case, problem: Problem) -> float:
    """How far E_μ[ĉ] strays from 1 over the fits."""
    matching = _random_matching(case, problem.cop.discounted(_any_discount(case)))
    return mean_drift(fits(matching, mean_one(case, problem.d_mu)), problem.d_mu)


def _stream_mean(problem: Problem, x: Vector) -> float:
    """E_μ̄[x] over the states of a stream of episodes."""
    return float(problem.d_mu @ x / problem.d_mu.sum())


def _bounds(problem: Problem, ratio_discount: float) -> tuple[float, float]:
    """B6's bounds on E_μ̄[c]: p₀ = 1/L_μ is the share of states that start an episode."""
    return mean_ratio_bounds(ratio_discount, 1.0 / float(problem.d_mu.sum()))


def _contraction(case: Case) -> float:
    """By how much D(Y_γ̂x‖Y_γ̂y) exceeds γ̂D(x‖y) for random x and y."""
    operator = case.problem.cop.discounted(case.ratio_discount)
    x, y = positive(case), positive(case)
    return excess_divergence(x, y, operator.apply(x), operator.apply(y), case)


def _pythagoras(case: Case, link: Link) -> float:
    """|D(T‖c_θ) - D(T‖ĉ) - D(ĉ‖c_θ)| for the fit ĉ to random targets T, over 1 + D(T‖c_θ)."""
    d_mu, phi, target = case.problem.d_mu, case.features(bias=True), positive(case)
    fitted = project_matching(target, phi, d_mu, link)
    member = link.ratio(phi @ case.rng.standard_normal(phi.shape[1]))
    if min(fitted.min(), member.min()) == 0.0:  # A score so low that its ratio is rounded to 0.
        return 0.0
    whole = kl_divergence(target, member, d_mu)
    parts = kl_divergence(target, fitted, d_mu) + kl_divergence(fitted, member, d_mu)
    return abs(whole - parts) / (1.0 + whole)


def _ratio_and_logarithm(c: Vector) -> Dense:
    return np.column_stack([np.ones(len(c)), c, np.log(c)])


@theorem(
    "B7-balance",
    cases.RANDOM + WITH_BIAS + ANY_LINK + ANY_DISCOUNT,
    continuing,
    cases=100,
    broken_by="B7-balance-needs-bias",
)
def _balance(case: Case) -> float:
    """Fits with a bias keep the mean ratio: E_μ[ĉ] = 1 for all fits from a start of mean 1, for every γ̂ ≤ 1 and either link."""
    return _mean_kept(case, case.problem)


@refuted(
    "B7-balance-needs-bias",
    cases.RANDOM + ", random features without a bias, γ̂ = 0.9",
    continuing,
    tolerance=1e-1,
    cases=30,
)
def _mean_without_bias(case: Case) -> float:
    """fits without a bias also keep the mean ratio."""
    operator, d_mu = case.problem.cop.discounted(0.9), case.problem.d_mu
    phi, c = case.features(bias=False), np.ones(len(d_mu))
    for _ in range(NUM_FITS):
        c = project_matching(operator.apply(c), phi, d_mu)
    return mean_drift([c], d_mu)


@theorem(
    "B7-balance-restart",
    ANY_START + WITH_BIAS + ANY_LINK + ANY_DISCOUNT,
    any_start,
    cases=100,
    broken_by="B7-balance-needs-bias",
)
def _balance_with_restarts(case: Case) -> float:
    """With restarts, fits with a bias also have E_μ[ĉ] = 1 from a start of mean 1."""
    return _mean_kept(case, case.problem.restart())


@theorem(
    "B7-balance-visits",
    ANY_START + WITH_BIAS + ANY_DISCOUNT,
    any_start,
    broken_by="B7-balance-needs-bias",
)
def _balance_of_visits(case: Case) -> float:
    """Counting visits, a fit with a bias to the targets of c has the mean E_μ̄[ĉ] = 1 - γ̂ + γ̂p₀ + γ̂(E_μ̄[c] - E_μ̄[ρc; ends]), for every γ̂ ≤ 1."""
    problem, gamma, c = case.problem, _any_discount(case), positive(case)
    link = _random_link(case)
    target = problem.cop.discounted(gamma).apply(c)
    fitted = project_matching(target, case.features(bias=True), problem.d_mu, link)
    stays = np.asarray(problem.chain_pi.p.sum(axis=1)).ravel()
    expected = _bounds(problem, gamma)[0] + gamma * _stream_mean(problem, c * stays)
    return abs(_stream_mean(problem, fitted) - expected) / max(1.0, expected)


@theorem(
    "B7-bounded-mean",
    ANY_START + WITH_BIAS + ANY_LINK + ", γ̂ < 1",
    any_start,
    cases=100,
    broken_by="B6-fitted-bound",
)
def _bounded_mean(case: Case) -> float:
    """Counting visits, every fit from c = 1 meets B6's two bounds, 1 - γ̂ + γ̂p₀ ≤ E_μ̄[ĉ] ≤ 1 + γ̂p₀/(1 - γ̂), whatever the features besides the bias."""
    problem, gamma = case.problem, case.ratio_discount
    matching = _random_matching(case, problem.cop.discounted(gamma))
    low, high = _bounds(problem, gamma)
    means = [_stream_mean(problem, c) for c in fits(matching, np.ones(len(problem.d_mu)))]
    return max(max(means) - high, low - min(means)) / high


@theorem(
    "B7-contraction",
    RANDOM + ", π with or without a transient state",
    with_transient,
    broken_by="B7-contraction-squared",
)
def _contraction_of_targets(case: Case) -> float:
    """Targets contract in D(x‖y) = Σ d_μ [x log(x/y) - x + y]: D(Y_γ̂x‖Y_γ̂y) ≤ γ̂D(x‖y) for all positive x and y."""
    return _contraction(case)


@theorem(
    "B7-contraction-visits", ANY_START + ", γ̂ < 1", any_start, broken_by="B7-contraction-squared"
)
def _contraction_of_visits(case: Case) -> float:
    """Counting visits, the targets of eq. (11) also contract in D: D(Y_γ̂x‖Y_γ̂y) ≤ γ̂D(x‖y)."""
    return _contraction(case)


@refuted("B7-contraction-squared", SKEWED + ", γ̂ = 0.99", skewed, tolerance=1e-1)
def _squared_contraction(case: Case) -> float:
    """the squared distance under d_μ also contracts by γ̂, ‖Y_γ̂x - Y_γ̂y‖² ≤ γ̂‖x - y‖²."""
    operator, d_mu = case.problem.cop.discounted(0.99), case.problem.d_mu
    x, y = positive(case), positive(case)
    after = float(d_mu @ (operator.apply(x) - operator.apply(y)) ** 2)
    return after / float(d_mu @ (x - y) ** 2) - 0.99


@theorem(
    "B7-pythagoras",
    cases.RANDOM + ", random features, targets and θ",
    continuing,
    broken_by="B7-pythagoras-safe",
)
def _pythagoras_of_exponentials(case: Case) -> float:
    """With the exponential link, D(T‖c_{θ}) = D(T‖ĉ) + D(ĉ‖c_{θ}) for the fit ĉ to T and every c_{θ} = exp(Φθ)."""
    return _pythagoras(case, EXPONENTIAL)


@refuted("B7-pythagoras-safe", cases.RANDOM + ", random features, targets and θ", continuing)
def _pythagoras_of_safe_link(case: Case) -> float:
    """with the safe link, D(T‖c_{θ}) = D(T‖ĉ) + D(ĉ‖c_{θ}) for the fit ĉ to T and every c_{θ} = g(Φθ)."""
    return _pythagoras(case, SAFE)


@theorem(
    "B7-linear-convergence",
    RANDOM + ", log c* in the span",
    continuing,
    cases=100,
    broken_by="B7-safe-link",
)
def _linear_convergence(case: Case) -> float:
    """If the family holds c* = d̂_π/d_μ, every fit brings the ratio closer to it, D(ĉ_{k+1}‖c*) ≤ γ̂D(ĉ_{k}‖c*), from every positive start."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    matching = MatchingOperator(problem.cop.discounted(gamma), family_with(case, np.log(c)))
    steps = [kl_divergence(x, c, problem.d_mu) for x in fits(matching, positive(case))]
    return worst_step(steps, gamma)


@theorem(
    "B7-floor", RANDOM + ", log x* in the span", continuing, cases=100, broken_by="B7-safe-link"
)
def _floored_convergence(case: Case) -> float:
    """On the floor, c = 1 - γ̂ + γ̂x, fits of x converge in the same way if the family holds x*: D(x_{k+1}‖x*) ≤ γ̂D(x_{k}‖x*), and ĉ ≥ 1 - γ̂."""
    problem, gamma = case.problem, case.ratio_discount
    arrivals = problem.cop.apply(case.c)
    phi = family_with(case, np.log(arrivals))
    matching = MatchingOperator(problem.cop.discounted(gamma), phi, floored=True)
    iterates = fits(matching, 1.0 - gamma + gamma * positive(case))
    steps = [
        kl_divergence(np.maximum(c - (1.0 - gamma), 0.0) / gamma, arrivals, problem.d_mu)
        for c in iterates
    ]
    return max(worst_step(steps, gamma), 1.0 - gamma - float(np.min(iterates)))


@refuted(
    "B7-safe-link",
    "two states that lead to each other, and a sink with a way in; γ̂ = 0.99, 300 fits",
    lambda rng: pair_and_sink(),
    tolerance=1.0,
    cases=1,
)
def _safe_link(problem: Problem) -> float:
    """fits with the safe link also converge to c* if their family holds it. Here they cycle around it."""
    c = problem.c_star(0.99)
    score = np.where(c < 1.0, np.log(c), c - 1.0)
    phi = np.column_stack([np.ones(len(c)), score])
    matching = MatchingOperator(problem.cop.discounted(0.99), phi, SAFE)
    return float(np.abs(fits(matching, np.ones(len(c)), 300)[-1] - c).max())


@refuted("B7-squared-loss", ATTRACTORS, lambda rng: attractors(), tolerance=0.2, cases=1)
def _squared_loss(problem: Problem) -> float:
    """fits by squared loss converge if the ratio is in the span. Here the projected operator has the eigenvalue 1.29."""
    phi = _ratio_and_logarithm(problem.c_star(0.99))
    projected = ProjectedOperator(problem.cop.discounted(0.99), phi, problem.d_mu)
    return spectral_radius(projected.on_weights()) - 1.0


@theorem(
    "B7-matched-there", ATTRACTORS, lambda rng: attractors(), cases=1, broken_by="B7-squared-loss"
)
def _matched_there(problem: Problem) -> float:
    """Where B7-squared-loss diverges, fits by the matching loss with the same features converge to the ratio."""
    c = problem.c_star(0.99)
    matching = MatchingOperator(problem.cop.discounted(0.99), _ratio_and_logarithm(c))
    return relative(matching.fixed_point() - c, c)


@theorem(
    "B7-undiscounted",
    cases.RANDOM + ", log(d_π/d_μ) in the span, γ̂ = 1",
    continuing,
    cases=100,
    broken_by="B7-undiscounted-periodic",
)
def _undiscounted(case: Case) -> float:
    """At γ̂ = 1, if the family holds d_π/d_μ and π's chain is aperiodic, fits from a start of mean 1 converge to it, and no fit is farther from it in D than the one before."""
    problem = case.problem
    c, start = problem.c_star(), mean_one(case, problem.d_mu)
    matching = MatchingOperator(problem.cop.discounted(1.0), family_with(case, np.log(c)))
    steps = [kl_divergence(x, c, problem.d_mu) for x in fits(matching, start)]
    return max(worst_step(steps, 1.0), relative(matching.fixed_point(start) - c, c))


@refuted(
    "B7-undiscounted-periodic",
    "two states that lead to each other, one-hot features, γ̂ = 1, 1 000 fits",
    lambda rng: two_cycle(),
    tolerance=0.1,
    cases=1,
)
def _periodic(problem: Problem) -> float:
    """at γ̂ = 1, fits whose family holds d_π/d_μ also converge if π's chain is periodic."""
    matching = MatchingOperator(problem.cop.discounted(1.0), np.eye(2))
    return float(np.abs(fits(matching, np.array([0.5, 1.5]), 1000)[-1] - 1.0).max())
