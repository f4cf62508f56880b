"""Results past the paper: 1/c weighting (B1), emphasis (B2), invariants (B3) and n-step targets (B4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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
from covshift.experiments.theory.claims.chapter import Chapter
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

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
RANDOM = cases.RANDOM + ", γ̂ < 1"
TRANSIENT = RANDOM + ", π with or without a transient state"
WITH_BIAS = cases.RANDOM + ", a bias and one normal feature, γ̂ = 0.9999"
GREEDY = "5 Dirichlet states, 6 actions, uniform μ, ε-greedy π with ε = 0.1"
ENUMERATED = "3 states, 2 actions, all paths of 2 or 3 steps enumerated"


def _greedy(rng: np.random.Generator) -> Case:
    """5 Dirichlet states, 6 actions; μ uniform, π ε-greedy with ε = 0.1 on random values."""
    problem = dirichlet(rng, 5, 6)
    pi = epsilon_greedy_probabilities(rng.standard_normal((5, 6)), 0.1)
    return Case(replace(problem, pi=pi, mu=uniform_policy(problem.mdp)), 0.445, 1, rng)


def _excess_norm(case: Case) -> float:
    """‖γ̂Y‖_ν less the modulus √(γ̂(1 - κ))."""
    operator = case.problem.cop.discounted(case.ratio_discount)
    norm = operator.induced_norm(dual_weighting(case.c, case.problem.d_mu))
    return norm - dual_modulus(case.c, case.ratio_discount)


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


def _trace_growth(case: Case, gamma: float) -> float:
    """Growth of E[F²|s] per step, minus 1: positive where the trace's second moment is infinite.

    D E[F²|·] follows x ↦ γ̂² (Σ_a μρ²P)ᵀ x plus a bounded contribution of the mean.
    """
    problem = case.problem
    weights = problem.mu * problem.rho**2
    second = np.einsum("sa,sat->st", weights, problem.mdp.dense_kernel())
    return gamma**2 * spectral_radius(second) - 1.0


def _n_step(case: Case, *, reverse: bool) -> float:
    """How far the conditional mean of the n-step target, by enumeration, is from Y_γ̂ⁿ."""
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


@theorem("B1-modulus", TRANSIENT, with_transient)
def _modulus(case: Case) -> float:
    """‖γ̂Y‖_ν ≤ √(γ̂(1 - κ)) < 1 for ν = d_μ/c and every γ̂ < 1."""
    return _excess_norm(case)


@theorem("B1-modulus-episodic", cases.ANY_START + ", γ̂ < 1", any_start)
def _modulus_episodic(case: Case) -> float:
    """Counting visits of episodes, the operator of eq. (11) contracts with the same modulus."""
    return _excess_norm(case)


@theorem("B1-dual", RANDOM, continuing)
def _dual_equality(case: Case) -> float:
    """‖Y‖_ν = ‖P_π‖_{d̂_π}."""
    problem = case.problem
    norm = problem.cop.induced_norm(dual_weighting(case.c, problem.d_mu))
    return abs(norm - induced_norm(problem.chain_pi.p, problem.d_mu * case.c))


@theorem(
    "B1-projected",
    RANDOM + ", random features",
    continuing,
    broken_by="theorem-4-needs-small-discount",
)
def _dual_projected(case: Case) -> float:
    """Π_ν Y_γ̂ contracts in ν with the modulus √(γ̂(1 - κ)), for every feature matrix."""
    problem = case.problem
    nu = dual_weighting(case.c, problem.d_mu)
    operator = problem.cop.discounted(case.ratio_discount)
    norm = ProjectedOperator(operator, case.features(), nu).induced_norm(nu)
    return max(norm - dual_modulus(case.c, case.ratio_discount), norm - 1.0 + 1e-12)


@theorem("B1-estimated-weights", RANDOM + ", weights off by up to e^½", continuing)
def _estimated_weights(case: Case) -> float:
    """If a ≤ w·c ≤ b, learning under weights w instead of 1/c multiplies the modulus by at most √(b/a)."""
    problem = case.problem
    error = np.exp(case.rng.uniform(-0.5, 0.5, len(case.c)))
    nu = problem.d_mu * error / case.c
    norm = problem.cop.discounted(case.ratio_discount).induced_norm(nu)
    growth = np.sqrt(error.max() / error.min())
    return norm - float(growth) * dual_modulus(case.c, case.ratio_discount)


@refuted("B1-source-expands", cases.SKEWED + ", γ̂ = 0.99", skewed, tolerance=1e-3)
def _source_weighted(case: Case) -> float:
    """drawing transitions ∝ c(s) at the source keeps at least the tabular operator stable."""
    problem = case.problem
    return spectral_radius(0.99 * source_weighted_matrix(problem, problem.c_star(0.99))) - 1.0


@theorem("B1-uniform-keeps-scale", WITH_BIAS, continuing, tolerance=1e-5, broken_by="B1-collapse")
def _uniform_keeps_scale(case: Case) -> float:
    """Uniform weights with a bias feature keep E_μ[ĉ] = 1."""
    return _collapse(case, dual=False)


@refuted("B1-collapse", WITH_BIAS, continuing, tolerance=0.5)
def _dual_keeps_scale(case: Case) -> float:
    """1/c weights with a bias feature keep E_μ[ĉ] = 1. As γ̂ → 1 the scale of ĉ collapses."""
    return _collapse(case, dual=True)


@theorem("B2-emphasis", RANDOM, continuing)
def _emphasis(case: Case) -> float:
    """c = (1 - γ̂)(I - γ̂Y)⁻¹e: the discounted ratio is normalized emphasis."""
    trace = expected_trace(case.problem.chain_pi, case.problem.d_mu, case.ratio_discount)
    return relative((1.0 - case.ratio_discount) * trace - case.c, case.c)


@theorem("B2-modulus", RANDOM + ", γ = 0.99", continuing)
def _emphatic_modulus(case: Case) -> float:
    """TD weighted by c·ρ contracts in the d̂_π norm with modulus γ√((1 - κ)/γ̂)."""
    problem = case.problem
    norm = problem.discount * induced_norm(problem.chain_pi.p, problem.d_mu * case.c)
    return norm - emphatic_modulus(case.c, case.ratio_discount, problem.discount)


@theorem("B2-safe", RANDOM + ", γ = 0.99", continuing, tolerance=0.0, broken_by="B2-small-discount")
def _safe_for_value(case: Case) -> float:
    """TD weighted by c·ρ contracts for every γ̂ ≥ γ²."""
    discount = case.problem.discount
    gamma = case.rng.uniform(discount**2, 1.0 - 1e-4)
    return emphatic_modulus(case.problem.c_star(gamma), gamma, discount) - 1.0 + 1e-12


@refuted(
    "B2-small-discount",
    cases.SKEWED + ", 2 normal features, γ = 0.99",
    skewed,
    tolerance=1e-3,
    cases=1000,
)
def _unsafe_for_value(case: Case) -> float:
    """TD weighted by c·ρ is stable for every γ̂. At γ̂ = 0.05 projected TD under d̂_π can diverge."""
    problem = case.problem
    d = problem.d_mu * problem.c_star(0.05)
    phi = case.rng.standard_normal((problem.mdp.num_states, 2))
    return spectral_radius(ProjectedOperator(problem.bellman, phi, d).on_weights()) - 1.0


@refuted("B2-trace-variance", GREEDY + ", γ̂ = 0.446", _greedy, tolerance=0.0, cases=50)
def _trace_variance(case: Case) -> float:
    """with uniform μ, 6 actions and ε = 0.1, the follow-on trace has finite variance at γ̂ = 0.446."""
    return _trace_growth(case, 0.446)


@theorem(
    "B2-trace-threshold",
    GREEDY + ", γ̂ = 0.444",
    _greedy,
    tolerance=0.0,
    cases=50,
    broken_by="B2-trace-variance",
)
def _trace_threshold(case: Case) -> float:
    """With uniform μ, 6 actions and ε = 0.1, the follow-on trace has a finite second moment at γ̂ = 0.444."""
    return _trace_growth(case, 0.444)


@theorem("B3-invariants", TRANSIENT, with_transient, broken_by="B3-below-one")
def _invariants(case: Case) -> float:
    """E_μ[c] = 1, E_π[c] ≥ 1 and E_{d̂_π}[c] = N/ESS, for every γ̂."""
    problem, c = case.problem, case.c
    d_hat = problem.d_mu * c
    return max(
        abs(float(problem.d_mu @ c) - 1.0),
        1.0 - float(problem.d_pi @ c),
        abs(float(d_hat @ c) - 1.0 / effective_sample_share(c, problem.d_mu)),
    )


@theorem("B3-limit", RANDOM, continuing, tolerance=1e-3)
def _chi_squared_limit(case: Case) -> float:
    """E_π[c] → 1 + χ²(d_π‖d_μ) as γ̂ → 1."""
    problem = case.problem
    expected = 1.0 + chi_squared(problem.d_pi, problem.d_mu)
    return abs(float(problem.d_pi @ problem.c_star(1.0 - 1e-7)) - expected) / expected


@theorem("B4-n-step", ENUMERATED, small, cases=15, broken_by="B4-reversed")
def _n_step_target(case: Case) -> float:
    """The n-step target averages to Y_γ̂ⁿ."""
    return _n_step(case, reverse=False)


@refuted("B4-reversed", ENUMERATED, small, cases=15)
def _reversed_target(case: Case) -> float:
    """the n-step target averages to Y_γ̂ⁿ whatever the order of its partial products of ρ."""
    return _n_step(case, reverse=True)
