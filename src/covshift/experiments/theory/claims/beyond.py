"""Results past the paper: B1 to B4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import (
    Case,
    any_start,
    continuing,
    paths,
    relative,
    skewed,
    small,
    with_transient,
)
from covshift.experiments.theory.survey import source_weighted_matrix
from covshift.rules import epsilon_greedy_probabilities, n_step_cop_target
from covshift.theory import (
    ProjectedOperator,
    chi_squared,
    dual_modulus,
    dual_weighting,
    effective_sample_share,
    emphatic_modulus,
    expected_trace,
    induced_norm,
    spectral_radius,
    uniform_policy,
)
from covshift.theory.examples import dirichlet
from covshift.validation import Vector


def _dual_norm(case: Case) -> float:
    operator = case.problem.cop.discounted(case.ratio_discount)
    norm = operator.induced_norm(dual_weighting(case.c, case.problem.d_mu))
    return norm - dual_modulus(case.c, case.ratio_discount)


def _dual_equality(case: Case) -> float:
    problem = case.problem
    norm = problem.cop.induced_norm(dual_weighting(case.c, problem.d_mu))
    return abs(norm - induced_norm(problem.chain_pi.p, problem.d_mu * case.c))


def _dual_projected(case: Case) -> float:
    """Norm of the projected operator in ν minus the modulus, which is below 1."""
    problem = case.problem
    nu = dual_weighting(case.c, problem.d_mu)
    operator = problem.cop.discounted(case.ratio_discount)
    norm = ProjectedOperator(operator, case.features(), nu).induced_norm(nu)
    return max(norm - dual_modulus(case.c, case.ratio_discount), norm - 1.0 + 1e-12)


def _source_weighted(case: Case) -> float:
    """Radius of the tabular operator whose transitions are drawn ∝ c at the source, minus 1."""
    problem = case.problem
    c = problem.c_star(0.99)
    return spectral_radius(0.99 * source_weighted_matrix(problem, c)) - 1.0


def _estimated_weights(case: Case) -> float:
    """Norm under weights w with a ≤ w·c ≤ b, minus √(b/a) times the exact modulus."""
    problem = case.problem
    error = np.exp(case.rng.uniform(-0.5, 0.5, len(case.c)))
    nu = problem.d_mu * error / case.c
    norm = problem.cop.discounted(case.ratio_discount).induced_norm(nu)
    growth = np.sqrt(error.max() / error.min())
    return norm - float(growth) * dual_modulus(case.c, case.ratio_discount)


def _collapse(case: Case, *, dual: bool) -> float:
    """1 - E_μ[ĉ] at the projected fixed point for γ̂ = 0.9999, with a bias feature."""
    problem = case.problem
    c = problem.c_star(0.9999)
    d = dual_weighting(c, problem.d_mu) if dual else problem.d_mu
    phi = np.column_stack([np.ones(len(c)), case.vector()])
    projected = ProjectedOperator(problem.cop.discounted(0.9999), phi, d)
    if np.linalg.cond(np.eye(2) - projected.on_weights()) > 1e12:
        return 0.0
    return abs(1.0 - float(problem.d_mu @ projected.fixed_point()))


def _emphasis(case: Case) -> float:
    trace = expected_trace(case.problem.chain_pi, case.problem.d_mu, case.ratio_discount)
    return relative((1.0 - case.ratio_discount) * trace - case.c, case.c)


def _emphatic(case: Case) -> float:
    problem = case.problem
    norm = problem.discount * induced_norm(problem.chain_pi.p, problem.d_mu * case.c)
    return norm - emphatic_modulus(case.c, case.ratio_discount, problem.discount)


def _safe_for_value(case: Case) -> float:
    """Modulus at γ̂ ≥ γ², minus 1."""
    discount = case.problem.discount
    gamma = case.rng.uniform(discount**2, 1.0 - 1e-4)
    return emphatic_modulus(case.problem.c_star(gamma), gamma, discount) - 1.0 + 1e-12


def _unsafe_for_value(case: Case) -> float:
    """Radius of the projected Bellman operator under d̂_π for a small γ̂, minus 1."""
    problem = case.problem
    d = problem.d_mu * problem.c_star(0.05)
    phi = case.rng.standard_normal((problem.mdp.num_states, 2))
    return spectral_radius(ProjectedOperator(problem.bellman, phi, d).on_weights()) - 1.0


def _greedy(rng: np.random.Generator) -> Case:
    """5 Dirichlet states, 6 actions; μ uniform, π ε-greedy with ε = 0.1 on random values."""
    problem = dirichlet(rng, 5, 6)
    pi = epsilon_greedy_probabilities(rng.standard_normal((5, 6)), 0.1)
    return Case(replace(problem, pi=pi, mu=uniform_policy(problem.mdp)), 0.445, 1, rng)


def _trace_variance(case: Case, gamma: float) -> float:
    """Growth of E[F²|s] a step, minus 1: positive where the trace's second moment is infinite.

    D E[F²|·] follows x ↦ γ̂² (Σ_a μρ²P)ᵀ x + what the mean adds, which is bounded.
    """
    problem = case.problem
    weights = problem.mu * problem.rho**2
    second = np.einsum("sa,sat->st", weights, problem.mdp.dense_kernel())
    return gamma**2 * spectral_radius(second) - 1.0


def _invariants(case: Case) -> float:
    problem, c = case.problem, case.c
    mean = float(problem.d_mu @ c)
    d_hat = problem.d_mu * c
    return max(
        abs(mean - 1.0),
        1.0 - float(problem.d_pi @ c),
        abs(float(d_hat @ c) - 1.0 / effective_sample_share(c, problem.d_mu)),
    )


def _chi_squared_limit(case: Case) -> float:
    """E_π[c] at γ̂ = 1 - 1e-7 against 1 + χ²(d_π‖d_μ)."""
    problem = case.problem
    expected = 1.0 + chi_squared(problem.d_pi, problem.d_mu)
    return abs(float(problem.d_pi @ problem.c_star(1.0 - 1e-7)) - expected) / expected


def _n_step(case: Case, *, reverse: bool) -> float:
    """Conditional mean of the n-step target by enumeration, against Y_γ̂ⁿ."""
    problem, n = case.problem, max(2, case.num_steps)
    c: Vector = case.vector()
    total = np.zeros(problem.mdp.num_states)
    for probability, states, actions in paths(problem, n):
        rhos = [problem.rho[[s], [a]] for s, a in zip(states, actions, strict=False)]
        if reverse:
            rhos.reverse()
        target = n_step_cop_target(c[[states[0]]], rhos, case.ratio_discount)
        total[states[-1]] += probability * float(target[0])
    operator = problem.cop.discounted(case.ratio_discount).power(n)
    return relative(total / problem.d_mu - operator.apply(c), c)


RANDOM = cases.RANDOM + ", γ̂ < 1"
TRANSIENT = RANDOM + ", π with or without a transient state"
GREEDY = "5 Dirichlet states, 6 actions, uniform μ, ε-greedy π with ε = 0.1"
EPISODIC = cases.ANY_START + ", γ̂ < 1"

CLAIMS: list[Claim[Any]] = [
    Claim(
        "B1-modulus",
        "‖γ̂Y‖_ν ≤ √(γ̂(1 - κ)) < 1 for ν = d_μ/c and every γ̂ < 1.",
        TRANSIENT,
        with_transient,
        _dual_norm,
    ),
    Claim(
        "B1-modulus-episodic",
        "The same for eq. (11), counting visits.",
        EPISODIC,
        any_start,
        _dual_norm,
    ),
    Claim("B1-dual", "‖Y‖_ν = ‖P_π‖_{d̂_π}.", RANDOM, continuing, _dual_equality),
    Claim(
        "B1-projected",
        "Π_ν Y_γ̂ contracts in ν with that modulus, for every feature matrix.",
        RANDOM + ", random features",
        continuing,
        _dual_projected,
        broken_by="theorem-4-needs-small-discount",
    ),
    Claim(
        "B1-estimated-weights",
        "If a ≤ w·c ≤ b, weights w cost at most a factor √(b/a) of the modulus.",
        RANDOM + ", weights off by up to e^½",
        continuing,
        _estimated_weights,
    ),
    Claim(
        "B1-source-expands",
        "Refuted: drawing transitions ∝ c(s) at the source keeps even the tabular operator stable.",
        cases.SKEWED + ", γ̂ = 0.99",
        skewed,
        _source_weighted,
        refutes=True,
        tolerance=1e-3,
    ),
    Claim(
        "B1-uniform-keeps-scale",
        "Uniform weights with a bias feature keep E_μ[ĉ] = 1.",
        cases.RANDOM + ", a bias and one normal feature, γ̂ = 0.9999",
        continuing,
        lambda case: _collapse(case, dual=False),
        tolerance=1e-5,
        broken_by="B1-collapse",
    ),
    Claim(
        "B1-collapse",
        "Refuted: so do 1/c weights. As γ̂ → 1 the scale of ĉ collapses.",
        cases.RANDOM + ", a bias and one normal feature, γ̂ = 0.9999",
        continuing,
        lambda case: _collapse(case, dual=True),
        refutes=True,
        tolerance=0.5,
    ),
    Claim(
        "B2-emphasis",
        "c = (1 - γ̂)(I - γ̂Y)⁻¹e: the discounted ratio is normalized emphasis.",
        RANDOM,
        continuing,
        _emphasis,
    ),
    Claim(
        "B2-modulus",
        "TD weighted by c·ρ contracts in the d̂_π norm with modulus γ√((1 - κ)/γ̂).",
        RANDOM + ", γ = 0.99",
        continuing,
        _emphatic,
    ),
    Claim(
        "B2-safe",
        "Any γ̂ ≥ γ² is safe on the value side.",
        RANDOM + ", γ = 0.99",
        continuing,
        _safe_for_value,
        tolerance=0.0,
        broken_by="B2-small-discount",
    ),
    Claim(
        "B2-small-discount",
        "Refuted: any γ̂ is. At γ̂ = 0.05 projected TD under d̂_π can diverge.",
        cases.SKEWED + ", 2 normal features, γ = 0.99",
        skewed,
        _unsafe_for_value,
        refutes=True,
        tolerance=1e-3,
        cases=1000,
    ),
    Claim(
        "B2-trace-variance",
        "Refuted: the follow-on trace has finite variance at γ̂ = 0.446 (uniform μ, 6 actions, "
        "ε = 0.1).",
        GREEDY + ", γ̂ = 0.446",
        _greedy,
        lambda case: _trace_variance(case, 0.446),
        refutes=True,
        tolerance=0.0,
        cases=50,
    ),
    Claim(
        "B2-trace-threshold",
        "At γ̂ = 0.444 its second moment is still finite there.",
        GREEDY + ", γ̂ = 0.444",
        _greedy,
        lambda case: _trace_variance(case, 0.444),
        tolerance=0.0,
        cases=50,
        broken_by="B2-trace-variance",
    ),
    Claim(
        "B3-invariants",
        "E_μ[c] = 1, E_π[c] ≥ 1 and E_{d̂_π}[c] = N/ESS, for every γ̂.",
        TRANSIENT,
        with_transient,
        _invariants,
        broken_by="B3-below-one",
    ),
    Claim(
        "B3-limit",
        "E_π[c] → 1 + χ²(d_π‖d_μ) as γ̂ → 1.",
        RANDOM,
        continuing,
        _chi_squared_limit,
        tolerance=1e-3,
    ),
    Claim(
        "B4-n-step",
        "The n-step target averages to Y_γ̂ⁿ.",
        "3 states, 2 actions, all paths of 2 or 3 steps enumerated",
        small,
        lambda case: _n_step(case, reverse=False),
        cases=15,
        broken_by="B4-reversed",
    ),
    Claim(
        "B4-reversed",
        "Refuted: the order of the partial products does not matter.",
        "3 states, 2 actions, all paths of 2 or 3 steps enumerated",
        small,
        lambda case: _n_step(case, reverse=True),
        refutes=True,
        tolerance=1e-2,
        cases=15,
    ),
]
