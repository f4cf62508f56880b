"""The episodic operators: visits, starts, and two readings of the rule for initial states."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims.cases import (
    ANY_START,
    ONE_START,
    Case,
    any_start,
    one_start,
    relative,
)
from covshift.rules import discounted_cop_target, initial_state_target
from covshift.theory import as_dense
from covshift.theory.examples import Problem
from covshift.validation import Vector


def _start(problem: Problem) -> Vector:
    assert problem.mdp.d_0 is not None
    return problem.mdp.d_0


def _visits(case: Case) -> float:
    """d_π by plain summation, and d_π = P_πᵀd_π + d₀."""
    problem = case.problem
    chain, mass = problem.chain_pi, _start(problem)
    total = np.zeros_like(mass)
    while mass.sum() > 1e-14:
        total = total + mass
        mass = chain.push(mass)
    balance = chain.push(problem.d_pi) + _start(problem) - problem.d_pi
    return max(relative(total - problem.d_pi, total), float(np.abs(balance).max()))


def _fixed_point(case: Case, ratio_discount: float) -> float:
    operator = case.problem.cop.discounted(ratio_discount)
    c = case.problem.c_star(ratio_discount)
    unique = operator.spectral_radius() - 1.0
    return max(relative(operator.apply(c) - c, c), unique)


def _start_has_ratio_one(case: Case) -> float:
    return abs(float(case.c[-1]) - 1.0)


def _starts_have_ratio_one(case: Case) -> float:
    return float(np.abs(case.c - 1.0)[_start(case.problem) > 0].max())


def _printed_offset(case: Case) -> float:
    """Fixed point with the printed + d₀ in place of + D⁻¹d₀, against d_π/d_μ."""
    problem = case.problem
    y = as_dense(problem.cop.as_matrix())
    printed = np.linalg.solve(np.eye(len(y)) - y, _start(problem))
    c = problem.d_pi / problem.d_mu
    return relative(printed - c, c)


def _expected_rule(case: Case) -> float:
    """The initial-state rule averaged over the states of a μ-stream, against eq. (11)."""
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


def _second_reading(case: Case) -> float:
    """Fixed point where starts only serve as bootstrap sources of value 1, against d̂_π/d_μ.

    Rows that start an episode are skipped, and a state from which episodes start counts as 1 when it
    is bootstrapped from in its first row; returns to it are learned as any other state.
    """
    problem, gamma = case.problem, case.ratio_discount
    start, d_mu = _start(problem), problem.d_mu
    arrivals = d_mu - start
    first_share = start / d_mu
    p = as_dense(problem.chain_pi.p)
    inflow = p.T * d_mu[None, :]
    where = arrivals > 1e-12
    size = int(where.sum())
    system = (
        np.eye(size)
        - gamma
        * (inflow * (1.0 - first_share)[None, :])[np.ix_(where, where)]
        / (arrivals[where][:, None])
    )
    known = gamma * (inflow @ first_share)[where] / arrivals[where] + (1.0 - gamma)
    return relative(np.linalg.solve(system, known) - case.c[where], case.c)


CLAIMS: list[Claim[Any]] = [
    Claim(
        "episodic-visits",
        "d_π = Σ (P_πᵀ)ⁱd₀ satisfies d_π = P_πᵀd_π + d₀.",
        ANY_START,
        any_start,
        _visits,
        cases=150,
    ),
    Claim(
        "equation-10",
        "Yc = D⁻¹P_πᵀDc + D⁻¹d₀ has the unique fixed point d_π/d_μ, for any start distribution.",
        ANY_START,
        any_start,
        lambda case: _fixed_point(case, 1.0),
        broken_by="equation-10-printed",
    ),
    Claim(
        "equation-10-printed",
        "Refuted: so it does with + d₀ in place of + D⁻¹d₀ without Assumption 1.",
        ANY_START,
        any_start,
        _printed_offset,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "equation-11",
        "Y_γ̂ has the unique fixed point D⁻¹(I - γ̂P_πᵀ)⁻¹(γ̂d₀ + (1 - γ̂)d_μ).",
        ANY_START,
        any_start,
        lambda case: _fixed_point(case, case.ratio_discount),
    ),
    Claim(
        "initial-state-rule",
        "Target 1 at an episode's first row and eq. (6) elsewhere averages to eq. (11).",
        ANY_START,
        any_start,
        _expected_rule,
        cases=150,
    ),
    Claim(
        "start-has-ratio-one",
        "c(s₀) = 1 for every γ̂.",
        ONE_START,
        one_start,
        _start_has_ratio_one,
        broken_by="start-with-returns",
    ),
    Claim(
        "start-with-returns",
        "Refuted: so it is for starts that are revisited.",
        ANY_START,
        any_start,
        _starts_have_ratio_one,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "second-reading",
        "c(s₀) := 1 as a bootstrap source alone gives the same ratio where starts are never revisited.",
        ONE_START,
        one_start,
        _second_reading,
        broken_by="second-reading-with-returns",
    ),
    Claim(
        "second-reading-with-returns",
        "Refuted: so it does where starts are revisited.",
        ANY_START,
        any_start,
        _second_reading,
        refutes=True,
        tolerance=1e-2,
    ),
]
