"""The episodic operators: visits, starts, and two readings of the rule for initial states."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.claims.cases import (
    ANY_START,
    ONE_START,
    Case,
    any_start,
    one_start,
    relative,
)
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.rules import discounted_cop_target, initial_state_target
from covshift.theory import as_dense
from covshift.theory.examples import Problem
from covshift.validation import Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted


def _start(problem: Problem) -> Vector:
    assert problem.mdp.d_0 is not None
    return problem.mdp.d_0


def _is_fixed_point(case: Case, ratio_discount: float) -> float:
    operator = case.problem.cop.discounted(ratio_discount)
    c = case.problem.c_star(ratio_discount)
    unique = operator.spectral_radius() - 1.0
    return max(relative(operator.apply(c) - c, c), unique)


def _other_reading(case: Case) -> float:
    """How far the fixed point is from d̂_π/d_μ if starts are bootstrapped from as 1 but not learned as 1.

    Rows that start an episode are skipped, and a state from which episodes start counts as 1 when it
    is bootstrapped from in its first row; returns to it are learned like any other state.
    """
    problem, gamma = case.problem, case.ratio_discount
    start, d_mu = _start(problem), problem.d_mu
    arrivals, first_share = d_mu - start, start / d_mu
    inflow = as_dense(problem.chain_pi.p).T * d_mu[None, :]
    where = arrivals > 1e-12
    returning = (inflow * (1.0 - first_share)[None, :])[np.ix_(where, where)]
    system = np.eye(int(where.sum())) - gamma * returning / arrivals[where][:, None]
    known = gamma * (inflow @ first_share)[where] / arrivals[where] + (1.0 - gamma)
    return relative(np.linalg.solve(system, known) - case.c[where], case.c)


@theorem("episodic-visits", ANY_START, any_start, cases=150)
def _visits(case: Case) -> float:
    """d_π = Σ (P_πᵀ)ⁱd₀ satisfies d_π = P_πᵀd_π + d₀."""
    problem = case.problem
    chain, mass = problem.chain_pi, _start(problem)
    total = np.zeros_like(mass)
    while mass.sum() > 1e-14:
        total = total + mass
        mass = chain.push(mass)
    balance = chain.push(problem.d_pi) + _start(problem) - problem.d_pi
    return max(relative(total - problem.d_pi, total), float(np.abs(balance).max()))


@theorem("equation-10", ANY_START, any_start, broken_by="equation-10-printed")
def _equation_10(case: Case) -> float:
    """Yc = D⁻¹P_πᵀDc + D⁻¹d₀ has the unique fixed point d_π/d_μ, for any start distribution."""
    return _is_fixed_point(case, 1.0)


@refuted("equation-10-printed", ANY_START, any_start)
def _printed_equation_10(case: Case) -> float:
    """Yc = D⁻¹P_πᵀDc + d₀, without D⁻¹ in the last term, has the fixed point d_π/d_μ even without Assumption 1."""
    problem = case.problem
    y = as_dense(problem.cop.as_matrix())
    printed = np.linalg.solve(np.eye(len(y)) - y, _start(problem))
    c = problem.d_pi / problem.d_mu
    return relative(printed - c, c)


@theorem("equation-11", ANY_START, any_start)
def _equation_11(case: Case) -> float:
    """Y_γ̂ has the unique fixed point D⁻¹(I - γ̂P_πᵀ)⁻¹(γ̂d₀ + (1 - γ̂)d_μ)."""
    return _is_fixed_point(case, case.ratio_discount)


@theorem("initial-state-rule", ANY_START, any_start, cases=150)
def _initial_state_rule(case: Case) -> float:
    """Target 1 at an episode's first row and the target of eq. (6) elsewhere average to eq. (11)."""
    problem, gamma = case.problem, case.ratio_discount
    c, start = case.vector(), _start(problem)
    kernel = problem.mdp.dense_kernel()
    total = start * initial_state_target(np.zeros(len(c)), np.ones(len(c), dtype=bool))
    for s in range(problem.mdp.num_states):
        for a in range(problem.mdp.num_actions):
            target = discounted_cop_target(c[[s]], problem.rho[[s], [a]], gamma)
            mass = problem.d_mu[s] * problem.mu[s, a] * kernel[s, a]
            total = total + mass * initial_state_target(target, np.zeros(1, dtype=bool))
    return relative(total / problem.d_mu - problem.cop.discounted(gamma).apply(c), c)


@theorem("start-has-ratio-one", ONE_START, one_start, broken_by="start-with-returns")
def _start_has_ratio_one(case: Case) -> float:
    """c(s₀) = 1 for every γ̂ where the start s₀ is never revisited."""
    return abs(float(case.c[-1]) - 1.0)


@refuted("start-with-returns", ANY_START, any_start)
def _revisited_start_has_ratio_one(case: Case) -> float:
    """c(s₀) = 1 also for starts that are revisited."""
    return float(np.abs(case.c - 1.0)[_start(case.problem) > 0].max())


@theorem("second-reading", ONE_START, one_start, broken_by="second-reading-with-returns")
def _second_reading(case: Case) -> float:
    """Taking c(s₀) as 1 only where it is bootstrapped from gives the same ratio where starts are never revisited."""
    return _other_reading(case)


@refuted("second-reading-with-returns", ANY_START, any_start)
def _second_reading_with_returns(case: Case) -> float:
    """taking c(s₀) as 1 only where it is bootstrapped from gives the same ratio where starts are revisited."""
    return _other_reading(case)
