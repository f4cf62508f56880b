"""B7, the matching loss where the family of fits does not hold the ratio c*: limits, stability and cost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from covshift.errors import InputError
from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, continuing, relative
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.experiments.theory.claims.matching import (
    RANDOM,
    WITH_BIAS,
    excess_divergence,
    family_with,
    fits,
    mean_drift,
    mean_one,
    positive,
    teleport,
    worst_step,
)
from covshift.theory import (
    BellmanOperator,
    MatchingOperator,
    ProjectedOperator,
    fit_matching,
    kl_divergence,
    project_matching,
    reset_margin,
    spectral_radius,
)
from covshift.theory.examples import Problem
from covshift.validation import Dense, Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
LINE = "; a bias and the position; γ̂ = 0.9"
FORK = "four states on a line, inner ones lead to the outer one of their side" + LINE
SWAP = "four states on a line that lead to the outer one of the other side" + LINE


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


def _settled(matching: MatchingOperator, start: Vector | None = None) -> Vector | None:
    """Where the fits come to rest, or None where they do not within 300."""
    try:
        return matching.fixed_point(start, max_steps=300)
    except InputError:
        return None


def _last_change(problem: Problem, averaging: float = 1.0) -> float:
    """The change of the 500th fit."""
    matching = MatchingOperator(problem.cop.discounted(0.9), line(), averaging=averaging)
    last = fits(matching, np.exp(0.1 * line()[:, 1]), 500)[-2:]
    return float(np.abs(last[1] - last[0]).max())


@theorem("B7-stationary-moments", cases.RANDOM + WITH_BIAS + ", γ̂ = 1", continuing, cases=100)
def _stationary_moments(case: Case) -> float:
    """Where fits at γ̂ = 1 come to rest, one step of π does not change the mean features of the law d_μĉ."""
    problem, phi = case.problem, case.features(bias=True)
    c = _settled(MatchingOperator(problem.cop.discounted(1.0), phi))
    if c is None:
        return 0.0
    law = problem.d_mu * c
    return relative(phi.T @ (problem.chain_pi.push(law) - law), phi)


@theorem("B7-like-td", RANDOM + WITH_BIAS, continuing, tolerance=1e-3, cases=100)
def _like_td(case: Case) -> float:
    """Near a fixed point ĉ, fits have the eigenvalues of γ̂Π P_π, by which TD(0) with the same features and discount γ̂ evaluates π under the law d_μĉ."""
    problem, gamma, phi = case.problem, case.ratio_discount, case.features(bias=True)
    matching = MatchingOperator(problem.cop.discounted(gamma), phi)
    c = _settled(matching)
    if c is None:
        return 0.0
    # The derivative is checked by the fit after a small step away from the fixed point.
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


@theorem("B7-aggregation", RANDOM + ", random cells", continuing, broken_by="B7-several-limits")
def _aggregation(case: Case) -> float:
    """If the features are the indicators of cells of states, fits contract, D(ΠY_γ̂x‖ΠY_γ̂y) ≤ γ̂D(x‖y), and so have one limit whatever c* is."""
    problem = case.problem
    size = len(problem.d_mu)
    cells = case.rng.integers(0, max(1, size // 2), size)
    matching = MatchingOperator(
        problem.cop.discounted(case.ratio_discount), np.eye(size)[:, np.unique(cells)][cells]
    )
    x, y = positive(case), positive(case)
    return excess_divergence(x, y, matching.apply(x), matching.apply(y), case)


@refuted("B7-several-limits", FORK, lambda rng: fork(), tolerance=1.0, cases=1)
def _several_limits(problem: Problem) -> float:
    """fits with other features also have one limit. Here the limit depends on the start."""
    matching = MatchingOperator(problem.cop.discounted(0.9), line())
    left, right = (_settled(matching, np.exp(side * line()[:, 1])) for side in (-0.1, 0.1))
    assert left is not None
    assert right is not None
    return float(np.abs(left - right).max())


@refuted("B7-cycle", SWAP, lambda rng: swap(), tolerance=1.0, cases=1)
def _cycle(problem: Problem) -> float:
    """fits converge for every γ̂ < 1 even if the family does not hold c*. Here they cycle, bounded."""
    return _last_change(problem)


@theorem(
    "B7-averaging",
    RANDOM + ", log c* in the span, 0.05 ≤ ω ≤ 1",
    continuing,
    cases=100,
    broken_by="B7-safe-link",
)
def _averaged_convergence(case: Case) -> float:
    """Fits to averaged targets, (1 - ω)ĉ_{k} + ωY_γ̂ĉ_{k}, also keep the mean, and if the family holds c*, D(ĉ_{k+1}‖c*) ≤ (1 - ω(1 - γ̂))D(ĉ_{k}‖c*)."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    share, start = case.rng.uniform(0.05, 1.0), mean_one(case, problem.d_mu)
    phi = family_with(case, np.log(c))
    matching = MatchingOperator(problem.cop.discounted(gamma), phi, averaging=share)
    iterates = fits(matching, start)
    steps = [kl_divergence(x, c, problem.d_mu) for x in iterates]
    return max(worst_step(steps, 1.0 - share * (1.0 - gamma)), mean_drift(iterates, problem.d_mu))


@theorem(
    "B7-averaging-stops-cycle", SWAP + ", ω = ½", lambda rng: swap(), cases=1, broken_by="B7-cycle"
)
def _averaging_stops_cycle(problem: Problem) -> float:
    """Where the fits of B7-cycle cycle, fits to targets averaged half and half with the previous ratio come to rest."""
    return _last_change(problem, averaging=0.5)


@theorem(
    "B7-misspecified",
    RANDOM + WITH_BIAS + "; c_{θ} nearest to c*",
    continuing,
    cases=100,
    broken_by="B7-misspecified-divergence",
)
def _misspecified(case: Case) -> float:
    """For every c_{θ} of mean 1, fits from a start of mean 1 have D(ĉ_{k+1}‖c_{θ}) ≤ γ̂D(ĉ_{k}‖c_{θ}) + b with b = max log(Y_γ̂c_{θ}/c_{θ}) ≤ 2 max |log(c_{θ}/c*)|; in the end D(ĉ‖c_{θ}) ≤ b/(1 - γ̂), whether they converge or not."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    phi, operator = case.features(bias=True), problem.cop.discounted(gamma)
    member = project_matching(c, phi, problem.d_mu)
    b = float(np.log(operator.apply(member) / member).max())
    iterates = fits(MatchingOperator(operator, phi), mean_one(case, problem.d_mu))
    steps = [kl_divergence(x, member, problem.d_mu) for x in iterates]
    worst = max(after - gamma * before for before, after in pairwise(steps)) - b
    return max(worst / (1.0 + steps[0]), b - 2.0 * float(np.abs(np.log(member / c)).max()))


@refuted(
    "B7-misspecified-divergence",
    "a sink, and a rare state that leads there by a much rarer one; γ̂ = ½",
    lambda rng: detour(1e-4),
    tolerance=500.0,
    cases=1,
)
def _bounded_by_nearest(problem: Problem) -> float:
    """D(c*‖ĉ) ≤ min_{θ} D(c*‖c_{θ})/(1 - γ̂), or at most some other multiple that depends on γ̂ alone."""
    operator, d_mu = problem.cop.discounted(0.5), problem.d_mu
    phi, c = np.column_stack([np.ones(3), [0.0, 1.0, 3.0]]), problem.c_star(0.5)
    fitted = MatchingOperator(operator, phi).fixed_point()
    nearest = project_matching(c, phi, d_mu)
    return kl_divergence(c, fitted, d_mu) / kl_divergence(c, nearest, d_mu) - 2.0


@theorem(
    "B7-nearly-in-family",
    RANDOM + ", a family that misses log c* by 10⁻⁴",
    continuing,
    tolerance=1e-2,
    broken_by="B7-misspecified-divergence",
)
def _nearly_in_family(case: Case) -> float:
    """As the family comes near to c*, D(c*‖ĉ) is at most min_{θ} D(c*‖c_{θ})/(1 - γ̂(1 - κ)) with κ = (1 - γ̂)/max c*."""
    problem, gamma, c = case.problem, case.ratio_discount, case.c
    missed = case.vector()
    phi = np.column_stack([np.ones(len(c)), np.log(c) - 1e-4 * missed / np.abs(missed).max()])
    nearest = kl_divergence(c, project_matching(c, phi, problem.d_mu), problem.d_mu)
    fitted = _settled(MatchingOperator(problem.cop.discounted(gamma), phi), c)
    if fitted is None or nearest < 1e-11:  # The family holds c but for rounding: no comparison.
        return -1.0
    margin = 1.0 - gamma * (1.0 - reset_margin(c, gamma))
    return kl_divergence(c, fitted, problem.d_mu) / nearest * margin - 1.0
