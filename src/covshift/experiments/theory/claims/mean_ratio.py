"""The mean ratio of episodes: its value, its bounds, and what fits make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covshift.experiments.theory.claims.cases import (
    ANY_START,
    ONE_START,
    Case,
    any_start,
    one_start,
)
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.theory import (
    FiniteMDP,
    ProjectedOperator,
    as_dense,
    chi_squared,
    mean_ratio_bounds,
    span_projection,
)
from covshift.theory.examples import Problem
from covshift.validation import Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
CORRIDOR = "five states in a row, a line is fitted, γ̂ = 0.99; μ moves on with probability 0.5, π with 0.9 from the start"


def long_stay() -> Problem:
    """From the start to A (99 %) or B (1 %); action 0 stays, action 1 ends the episode.

    π stays in A for 100 steps and in B for 10⁵, μ for about 1 and for 50. At γ̂ = 0.99 what π does in B
    lies beyond the horizon, so that c(B) is far too small where π spends most of its time.
    """
    p = np.zeros((3, 2, 3))
    p[0, 0, 0] = p[1, 0, 1] = 1.0
    p[2, :, 0], p[2, :, 1] = 0.99, 0.01
    pi, mu = (
        np.array([[a, 1 - a], [b, 1 - b], [1, 0]]) for a, b in ((0.99, 0.99999), (0.01, 0.98))
    )
    return Problem(FiniteMDP(p, np.zeros((3, 2)), np.eye(3)[2]), pi, mu)


def corridor(move_on: float) -> Problem:
    """Five states in a row, the last of which leads to itself; action 0 moves on, action 1 ends the episode.

    π moves on with probability 0.9 in the first state and `move_on` in the others, μ with 0.5. c then grows along the
    row faster than linearly, and a line fitted to it is negative at the start.
    """
    p = np.zeros((5, 2, 5))
    p[np.arange(5), 0, [1, 2, 3, 4, 4]] = 1.0
    follow = np.array([0.9, *(move_on,) * 4])
    pi, mu = (np.column_stack([go, 1.0 - go]) for go in (follow, np.full(5, 0.5)))
    return Problem(FiniteMDP(p, np.zeros((5, 2)), np.eye(5)[0]), pi, mu)


def _lengths(problem: Problem) -> tuple[float, float]:
    """L_π and L_μ, the mean lengths of episodes."""
    return float(problem.d_pi.sum()), float(problem.d_mu.sum())


def _mean(problem: Problem, c: Vector) -> float:
    """E_μ̄[c], over the states of a stream."""
    return float(problem.d_mu @ c / problem.d_mu.sum())


def _on_policy_mean(problem: Problem, c: Vector) -> float:
    """E_π̄[c]."""
    return float(problem.d_pi @ c / problem.d_pi.sum())


def _difference_from_lengths(case: Case, ratio_discount: float) -> float:
    length_pi, length_mu = _lengths(case.problem)
    c = case.problem.c_star(ratio_discount)
    return abs(_mean(case.problem, c) - length_pi / length_mu)


def _wrong_order(problem: Problem, ratio_discount: float) -> float:
    """E_μ̄[c] - E_π̄[c]."""
    c = problem.c_star(ratio_discount)
    return _mean(problem, c) - _on_policy_mean(problem, c)


def _bounds(problem: Problem, ratio_discount: float) -> tuple[float, float]:
    """Between which E_μ̄[c] lies for every policy: p₀ = 1/L_μ is the share of rows that start an episode."""
    return mean_ratio_bounds(ratio_discount, 1.0 / float(problem.d_mu.sum()))


def _balance(problem: Problem, c: Vector, ratio_discount: float) -> float:
    """E_μ̄[c] less its value by the balance: the bound less γ̂/(1 - γ̂) times the mass at the episodes' ends."""
    ends = 1.0 - np.asarray(problem.chain_pi.p.sum(axis=1)).ravel()
    lost = ratio_discount / (1.0 - ratio_discount) * _mean(problem, c * ends)
    return _mean(problem, c) - _bounds(problem, ratio_discount)[1] + lost


def _fitted_mean(problem: Problem, *, clip: bool) -> float:
    """E_μ̄[ĉ] over its bound, minus 1, after 4 000 fits of a line to targets of γ̂ = 0.99; at most 10⁶."""
    operator = problem.cop.discounted(0.99)
    fit = span_projection(np.column_stack([np.ones(5), np.arange(5.0)]), problem.d_mu)
    c, (_, most) = np.ones(5), _bounds(problem, 0.99)
    for _ in range(4000):
        c = fit @ operator.apply(np.maximum(c, 0.0) if clip else c)
        if _mean(problem, c) > 1e6 * most:
            return 1e6
    return _mean(problem, c) / most - 1.0


@theorem("visits-mean", ANY_START, any_start, broken_by="visits-mean-discounted")
def _visits_mean(case: Case) -> float:
    """Counting visits, E_μ̄[c] = L_π/L_μ at γ̂ = 1, the ratio of mean episode lengths."""
    return _difference_from_lengths(case, 1.0)


@refuted("visits-mean-discounted", ANY_START, any_start)
def _visits_mean_discounted(case: Case) -> float:
    """counting visits, E_μ̄[c] = L_π/L_μ for γ̂ < 1."""
    return _difference_from_lengths(case, 0.9)


@theorem("restart-mean", ONE_START, one_start, broken_by="papers-combination")
def _restart_mean(case: Case) -> float:
    """With restarts E_μ[c] = 1 for every γ̂, and c(s₀) = L_μ/L_π at γ̂ = 1."""
    restart = case.problem.restart()
    length_pi, length_mu = _lengths(case.problem)
    mean = abs(float(restart.d_mu @ restart.c_star(case.ratio_discount)) - 1.0)
    return max(mean, abs(float(restart.c_star()[-1]) - length_mu / length_pi))


@refuted("papers-combination", ONE_START + ", γ̂ = 1", one_start)
def _papers_combination(case: Case) -> float:
    """c(s₀) = 1 and E_μ[c] = 1 hold together."""
    return abs(_mean(case.problem, case.problem.c_star()) - 1.0)


@theorem("B3-order-undiscounted", ANY_START, any_start, broken_by="B3-order-discounted")
def _order_undiscounted(case: Case) -> float:
    """Counting visits, E_π̄[c] ≥ E_μ̄[c] at γ̂ = 1."""
    return _wrong_order(case.problem, 1.0)


@refuted(
    "B3-order-discounted",
    "a start that leads to A or rarely to B; π stays in B for 10⁵ steps; γ̂ = 0.99",
    lambda rng: long_stay(),
    tolerance=1.0,
    cases=1,
)
def _order_discounted(problem: Problem) -> float:
    """counting visits, E_π̄[c] ≥ E_μ̄[c] for γ̂ < 1. Where π stays in a state for longer than 1/(1 - γ̂) steps, E_μ̄[c] can be several times E_π̄[c], even under Assumption 1."""
    return _wrong_order(problem, 0.99)


@theorem("B3-order-restart", ANY_START, any_start)
def _order_with_restarts(case: Case) -> float:
    """With restarts, E_π[c] ≥ E_μ[c] = 1 for any start distribution."""
    restart = case.problem.restart()
    c = restart.c_star(case.ratio_discount)
    return float(restart.d_mu @ c - restart.d_pi @ c)


@refuted("B3-below-one", ANY_START, any_start)
def _at_least_one(case: Case) -> float:
    """counting visits, E_π̄[c] ≥ 1."""
    return 1.0 - _on_policy_mean(case.problem, case.c)


@theorem("B3-undiscounted-visits", ANY_START, any_start)
def _undiscounted_visits(case: Case) -> float:
    """Counting visits at γ̂ = 1, E_π̄[c] = (L_π/L_μ)(1 + χ²)."""
    problem = case.problem
    length_pi, length_mu = _lengths(problem)
    expected = length_pi / length_mu
    expected *= 1.0 + chi_squared(problem.d_pi / length_pi, problem.d_mu / length_mu)
    return abs(_on_policy_mean(problem, problem.c_star()) - expected)


@theorem(
    "B6-bounded-mean",
    ANY_START + "; 30 random policies in turn",
    any_start,
    broken_by="B6-fitted-bound",
)
def _bounded_mean(case: Case) -> float:
    """Counting visits, E_μ̄[c] = 1 + γ̂/(1 - γ̂)(p₀ - E_μ̄[ρc; ends]) ≤ 1 + γ̂p₀/(1 - γ̂) and ≥ 1 - γ̂ + γ̂p₀ for every π, and along targets of any sequence of policies."""
    problem, gamma = case.problem, case.ratio_discount
    lowest, bound = _bounds(problem, gamma)
    c, means = np.ones(len(case.c)), [_mean(problem, case.c)]
    for _ in range(30):
        pi = case.rng.dirichlet(np.ones(problem.mdp.num_actions), problem.mdp.num_states)
        c = replace(problem, pi=pi).cop.discounted(gamma).apply(c)
        means.append(_mean(problem, c))
    beyond = max(max(means) - bound, lowest - min(means))
    return max(abs(_balance(problem, case.c, gamma)), beyond) / bound


@theorem("B6-lengths", ANY_START, any_start)
def _mean_by_lengths(case: Case) -> float:
    """E_μ̄[c] = γ̂p₀ℓ₀ + (1 - γ̂)ℓ_μ, where ℓ₀ and ℓ_μ are the mean Σ γ̂ᵗ of π's episodes from starts and from states of μ. As 1 ≤ ℓ_μ ≤ 1/(1 - γ̂), episodes of π determine E_μ̄[c] up to 1."""
    problem, gamma = case.problem, case.ratio_discount
    size = problem.mdp.num_states
    discounted = np.eye(size) - gamma * as_dense(problem.chain_pi.p)
    lengths: Vector = np.linalg.solve(discounted, np.ones(size)).astype(np.float64)
    assert problem.mdp.d_0 is not None
    from_starts = gamma * float(problem.mdp.d_0 @ lengths) / float(problem.d_mu.sum())
    return abs(_mean(problem, case.c) - from_starts - (1.0 - gamma) * _mean(problem, lengths))


@theorem("B6-fitted-balance", ANY_START + ", random features", any_start)
def _fitted_balance(case: Case) -> float:
    """The fixed point of a fit with a bias under d_μ has the same balance, E_μ̄[ĉ] = 1 + γ̂/(1 - γ̂)(p₀ - E_μ̄[ρĉ; ends])."""
    problem, gamma = case.problem, case.ratio_discount
    operator = problem.cop.discounted(gamma)
    projected = ProjectedOperator(operator, case.features(bias=True), problem.d_mu)
    system = np.eye(len(projected.on_weights())) - projected.on_weights()
    if np.linalg.cond(system) > 1e8:
        return 0.0
    fitted = projected.fixed_point()
    return (1.0 - gamma) * abs(_balance(problem, fitted, gamma)) / float(np.abs(fitted).max())


@refuted(
    "B6-fitted-bound",
    CORRIDOR + " and with 0.95 elsewhere",
    lambda rng: corridor(0.95),
    tolerance=0.1,
    cases=1,
)
def _fitted_bound(problem: Problem) -> float:
    """such a fit also keeps the bound E_μ̄[ĉ] ≤ 1 + γ̂p₀/(1 - γ̂). Where ĉ is negative and π ends episodes, mass comes in."""
    return _fitted_mean(problem, clip=False)


@refuted(
    "B6-clipped-sources",
    CORRIDOR + " and elsewhere",
    lambda rng: corridor(0.9),
    tolerance=1e5,
    cases=1,
)
def _clipped_sources(problem: Problem) -> float:
    """a fit that stays below the bound also does so when negative outputs are clipped at 0 in targets, as in the paper's agent. Every clip adds mass, and the fit diverges."""
    return _fitted_mean(problem, clip=True) if _fitted_mean(problem, clip=False) < 0 else 0.0
