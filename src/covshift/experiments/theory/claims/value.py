"""Theorem 1 and the covariate shift approach to value learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, continuing, relative, skewed
from covshift.experiments.theory.claims.chapter import Chapter
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

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
RANDOM = cases.RANDOM + ", random features"
BETWEEN = ", d between d_π and any distribution, γ = 0.8"


def kolter_pole(problem: Problem) -> float:
    """μ's mass on the first state at which Kolter's projected equation has no solution.

    With one feature it is Φᵀ D (Φ - γP_πΦ) = 0, which is linear in that mass.
    """
    phi = problem.phi[:, 0]
    terms = phi * (phi - problem.discount * problem.chain_pi.p @ phi)
    return float(terms[1] / (terms[1] - terms[0]))


def _near_pole(rng: np.random.Generator) -> tuple[float, float]:
    """A mass of μ near the pole, and the chain's ε."""
    epsilon = 10.0 ** rng.uniform(-6, -2)
    pole = kolter_pole(kolter_chain(epsilon=epsilon))
    return pole + 10.0 ** rng.uniform(-8, -5), epsilon


def _excess_at_d_pi(case: Case, quantity: str, *, bias: bool = False) -> float:
    """How much larger a quantity of Theorem 1 is at d_π than at a random d.

    The random d lies between d_π and any distribution, and is drawn until the bound there is finite.
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


def _expected_direction(problem: Problem, phi: Dense, theta: Vector, weights: Dense) -> Vector:
    """Σ weights(s, a) P(s'|s, a) δ φ(s), term by term."""
    kernel, v = problem.mdp.dense_kernel(), phi @ theta
    s, a, t = (index.ravel() for index in np.indices(kernel.shape))
    discount = np.full(len(s), problem.discount)
    error = td_error(v[s], problem.mdp.r[s, a], discount, v[t])
    return np.asarray(linear_direction(weights[s, a] * kernel[s, a, t] * error, phi[s]).sum(axis=0))


def _difference_from_on_policy(case: Case, *, with_rho: bool) -> float:
    """How far the expected step of TD weighted by c, or by cρ, is from that of TD under d_π."""
    problem, phi = case.problem, case.features()
    theta: Vector = case.rng.standard_normal((phi.shape[1],))
    on_policy = _expected_direction(problem, phi, theta, problem.d_pi[:, None] * problem.pi)
    weights = problem.c_star()[:, None] * problem.d_mu[:, None] * problem.mu
    corrected = _expected_direction(
        problem, phi, theta, weights * problem.rho if with_rho else weights
    )
    return relative(corrected - on_policy, on_policy)


def _norm_difference(case: Case, power: float) -> float:
    """The squared seminorm of A = D_d^power, less Σ d x²."""
    x, d = case.vector(), case.weighting()
    return abs(float(np.sum((d**power * x) ** 2)) - weighted_norm(x, d) ** 2)


@theorem("theorem-1", RANDOM + ", random d", continuing, broken_by="theorem-1-needs-its-condition")
def _theorem_1(case: Case) -> float:
    """Where γ‖Π_d P_π‖ < 1, the projected fixed point errs by at most ‖Π_d V - V‖ / (1 - γ‖Π_d P_π‖) in the d_π norm."""
    problem, phi = case.problem, case.features()
    found = approximation_error(problem.bellman, phi, case.weighting(), problem.d_pi)
    return found.error - found.bound if np.isfinite(found.bound) else -1.0


@refuted(
    "theorem-1-needs-its-condition",
    "Kolter's chain near the pole of its projected equation, where γ‖Π_d P_π‖ > 1",
    _near_pole,
    tolerance=1e-7,
    cases=50,
)
def _theorem_1_without_condition(case: tuple[float, float]) -> float:
    """the error is at most a thousand times the distance of V^π from the span, even without the condition of Theorem 1."""
    mass, epsilon = case
    problem = kolter_chain(mass, epsilon)
    found = approximation_error(problem.bellman, problem.phi, problem.d_mu, problem.d_pi)
    value = problem.bellman.fixed_point()
    distance = weighted_norm(project_span(value, problem.phi, problem.d_mu) - value, problem.d_pi)
    return found.error / distance - 1000.0


@theorem("E9-looser-bound", RANDOM + BETWEEN, continuing, tolerance=1e-6)
def _looser_bound(case: Case) -> float:
    """Theorem 1's looser bound, with ‖Π_d‖ in the denominator, is smallest at d = d_π."""
    return _excess_at_d_pi(case, "looser_bound")


@theorem(
    "E9-displayed-bound-with-bias",
    RANDOM + " with a bias" + BETWEEN,
    continuing,
    tolerance=1e-6,
    broken_by="E9-displayed-bound",
)
def _displayed_bound_with_bias(case: Case) -> float:
    """Theorem 1's displayed bound is smallest at d = d_π when e ∈ span Φ."""
    return _excess_at_d_pi(case, "bound", bias=True)


@refuted("E9-displayed-bound", RANDOM + BETWEEN, continuing, tolerance=1e-3)
def _displayed_bound(case: Case) -> float:
    """Theorem 1's displayed bound is smallest at d = d_π for any features."""
    return _excess_at_d_pi(case, "bound")


@refuted("E9-error", RANDOM + BETWEEN, continuing, tolerance=1e-3)
def _error(case: Case) -> float:
    """the error itself is smallest at d = d_π."""
    return _excess_at_d_pi(case, "error")


@refuted(
    "E10-condition",
    cases.SKEWED + ", random features, random d",
    skewed,
    tolerance=1e-3,
    cases=2000,
)
def _printed_condition(case: Case) -> float:
    """Theorem 1 also holds with P_{d_π} = e d_πᵀ, the chain that draws each next state from d_π, in place of P_π."""
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


@theorem("E13-norm", "random x and d", continuing)
def _norm(case: Case) -> float:
    """Σ d(s) x(s)² is the squared seminorm of A = D_d^½."""
    return _norm_difference(case, 0.5)


@refuted("E13-printed-norm", "random x and d", continuing)
def _printed_norm(case: Case) -> float:
    """Σ d(s) x(s)² is the squared seminorm of A = D_d."""
    return _norm_difference(case, 1.0)


@theorem("weighted-td", RANDOM, continuing, broken_by="E14-weighted-td")
def _weighted_td(case: Case) -> float:
    """TD weighted by c(s)ρ(s, a) has the expected step of semi-gradient TD under d_π."""
    return _difference_from_on_policy(case, with_rho=True)


@refuted("E14-weighted-td", RANDOM, continuing)
def _weighted_td_without_rho(case: Case) -> float:
    """TD weighted by c(s) alone has the expected step of semi-gradient TD under d_π."""
    return _difference_from_on_policy(case, with_rho=False)
