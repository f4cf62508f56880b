"""Theorem 1 and the covariate shift approach to value learning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, continuing, relative, skewed
from covshift.rules import linear_direction, td_error
from covshift.theory import (
    approximation_error,
    induced_norm,
    project_span,
    span_projection,
    weighted_norm,
)
from covshift.theory.examples import Problem, kolter_chain
from covshift.validation import Dense, Vector


def _theorem_1(case: Case) -> float:
    problem, phi = case.problem, case.features()
    found = approximation_error(problem.bellman, phi, case.weighting(), problem.d_pi)
    return found.error - found.bound if np.isfinite(found.bound) else -1.0


def _excess_at_d_pi(case: Case, quantity: str, *, bias: bool) -> float:
    """How much smaller a quantity of Theorem 1 is at a random d than at d_π.

    The random d lies between d_π and any distribution, and is drawn until the bound there says something.
    """
    problem = replace(case.problem, discount=0.8)
    phi = case.features(bias=bias)
    here = approximation_error(problem.bellman, phi, problem.d_pi, problem.d_pi)
    while True:
        share = case.rng.random()
        d = (1.0 - share) * problem.d_pi + share * case.weighting()
        there = approximation_error(problem.bellman, phi, d, problem.d_pi)
        if np.isfinite(getattr(there, quantity)):
            return float(getattr(here, quantity) - getattr(there, quantity))


def _unbounded(case: tuple[float, float]) -> float:
    """Error over the distance of V^π from the span, beyond a factor of a thousand."""
    mass, epsilon = case
    problem = kolter_chain(mass, epsilon)
    found = approximation_error(problem.bellman, problem.phi, problem.d_mu, problem.d_pi)
    value = problem.bellman.fixed_point()
    distance = weighted_norm(project_span(value, problem.phi, problem.d_mu) - value, problem.d_pi)
    return found.error / distance - 1000.0


def kolter_pole(problem: Problem) -> float:
    """μ's mass on the first state at which Kolter's projected equation has no solution.

    With one feature it is Φᵀ D (Φ - γP_πΦ) = 0, which is linear in that mass.
    """
    phi = problem.phi[:, 0]
    terms = phi * (phi - problem.discount * problem.chain_pi.p @ phi)
    return float(terms[1] / (terms[1] - terms[0]))


def _near_pole(rng: np.random.Generator) -> tuple[float, float]:
    epsilon = 10.0 ** rng.uniform(-6, -2)
    pole = kolter_pole(kolter_chain(epsilon=epsilon))
    return pole + 10.0 ** rng.uniform(-8, -5), epsilon


def _printed_condition(case: Case) -> float:
    """Theorem 1 with P_{d_π} read as the chain that draws each next state from d_π."""
    problem, phi, d = case.problem, case.features(), case.weighting()
    norm = induced_norm(
        span_projection(phi, d) @ np.outer(np.ones(len(d)), problem.d_pi), problem.d_pi
    )
    margin = 1.0 - problem.discount * norm
    if margin <= 0:
        return -1.0
    value = problem.bellman.fixed_point()
    distance = weighted_norm(project_span(value, phi, d) - value, problem.d_pi)
    error = approximation_error(problem.bellman, phi, d, problem.d_pi).error
    return error - distance / margin


def _expected_direction(problem: Problem, phi: Dense, theta: Vector, weights: Dense) -> Vector:
    """Σ weights(s, a) P(s'|s, a) δ φ(s), term by term."""
    kernel, v = problem.mdp.dense_kernel(), phi @ theta
    s, a, t = (index.ravel() for index in np.indices(kernel.shape))
    discount = np.full(len(s), problem.discount)
    error = td_error(v[s], problem.mdp.r[s, a], discount, v[t])
    return np.asarray(linear_direction(weights[s, a] * kernel[s, a, t] * error, phi[s]).sum(axis=0))


def _weighted_td(case: Case, *, with_rho: bool) -> float:
    problem, phi = case.problem, case.features()
    theta: Vector = case.rng.standard_normal((phi.shape[1],))
    on_policy = _expected_direction(problem, phi, theta, problem.d_pi[:, None] * problem.pi)
    weights = problem.c_star()[:, None] * problem.d_mu[:, None] * problem.mu
    corrected = _expected_direction(
        problem, phi, theta, weights * problem.rho if with_rho else weights
    )
    return relative(corrected - on_policy, on_policy)


def _norm_as_printed(case: Case) -> float:
    """‖x‖_A for A = D_d against Σ d x²."""
    x, d = case.vector(), case.weighting()
    return abs(float(np.sum((d * x) ** 2)) - weighted_norm(x, d) ** 2)


def _norm_as_ruled(case: Case) -> float:
    x, d = case.vector(), case.weighting()
    return abs(float(np.sum((np.sqrt(d) * x) ** 2)) - weighted_norm(x, d) ** 2)


RANDOM = cases.RANDOM + ", random features"

CLAIMS: list[Claim[Any]] = [
    Claim(
        "theorem-1",
        "Where γ‖Π_d P_π‖ < 1, the projected fixed point errs by at most "
        "‖Π_d V - V‖ / (1 - γ‖Π_d P_π‖) in the d_π norm.",
        RANDOM + ", random d",
        continuing,
        _theorem_1,
        broken_by="theorem-1-needs-its-condition",
    ),
    Claim(
        "theorem-1-needs-its-condition",
        "Refuted: some constant bounds the error by the distance of V^π from the span. Without the "
        "condition it exceeds a thousand distances.",
        "Kolter's chain near the pole of its projected equation, where γ‖Π_d P_π‖ > 1",
        _near_pole,
        _unbounded,
        refutes=True,
        cases=50,
    ),
    Claim(
        "E9-looser-bound",
        "The looser bound, with ‖Π_d‖ in the denominator, is smallest at d = d_π.",
        RANDOM + ", d between d_π and any, γ = 0.8",
        continuing,
        lambda case: _excess_at_d_pi(case, "looser_bound", bias=False),
        tolerance=1e-6,
    ),
    Claim(
        "E9-displayed-bound-with-bias",
        "The displayed bound is smallest at d = d_π when e ∈ span Φ.",
        RANDOM + " with a bias, d between d_π and any, γ = 0.8",
        continuing,
        lambda case: _excess_at_d_pi(case, "bound", bias=True),
        tolerance=1e-6,
        broken_by="E9-displayed-bound",
    ),
    Claim(
        "E9-displayed-bound",
        "Refuted: the displayed bound is smallest at d = d_π for any features.",
        RANDOM + ", d between d_π and any, γ = 0.8",
        continuing,
        lambda case: _excess_at_d_pi(case, "bound", bias=False),
        refutes=True,
        tolerance=1e-3,
    ),
    Claim(
        "E9-error",
        "Refuted: the error itself is smallest at d = d_π.",
        RANDOM + ", d between d_π and any, γ = 0.8",
        continuing,
        lambda case: _excess_at_d_pi(case, "error", bias=False),
        refutes=True,
        tolerance=1e-3,
    ),
    Claim(
        "E10-condition",
        "Refuted: the condition may be read with P_{d_π} = e d_πᵀ in place of P_π.",
        cases.SKEWED + ", random features, random d",
        skewed,
        _printed_condition,
        refutes=True,
        tolerance=1e-3,
        cases=2000,
    ),
    Claim(
        "E13-norm",
        "Σ d(s) x(s)² is the squared seminorm of A = D_d^½.",
        "random x and d",
        continuing,
        _norm_as_ruled,
    ),
    Claim(
        "E13-printed-norm",
        "Refuted: it is that of A = D_d.",
        "random x and d",
        continuing,
        _norm_as_printed,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "weighted-td",
        "TD weighted by c(s)ρ(s, a) has the expected step of semi-gradient TD under d_π.",
        RANDOM,
        continuing,
        lambda case: _weighted_td(case, with_rho=True),
        broken_by="E14-weighted-td",
    ),
    Claim(
        "E14-weighted-td",
        "Refuted: weighting by c(s) alone already gives that step.",
        RANDOM,
        continuing,
        lambda case: _weighted_td(case, with_rho=False),
        refutes=True,
        tolerance=1e-2,
    ),
]
