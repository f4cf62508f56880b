"""Retrace with a state ratio (B8): when both together contract better than either alone, and when not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, continuing, relative
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.theory import RetraceOperator, induced_norm, worst_feature_radius
from covshift.validation import Dense, Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
RANDOM = cases.RANDOM + ", γ = 0.99, λ from 0 to 1"
NEAR = cases.RANDOM + ", γ = 0.9, μ = π up to 1 %"
FULL = cases.RANDOM + ", γ = 0.99, λ = 1, the worst single feature"


def _operator(case: Case, decay: float | None = None) -> RetraceOperator:
    problem = case.problem
    chosen = float(case.rng.uniform()) if decay is None else decay
    return RetraceOperator(problem.mdp, problem.pi, problem.mu, problem.discount, chosen)


def _law(d: Vector, policy: Dense) -> Vector:
    """d(s) times the policy's probabilities, over (s, a)."""
    return (d[:, None] * policy).ravel()


def _near(rng: np.random.Generator) -> Case:
    """μ is π mixed with 1 % of another policy, at γ = 0.9."""
    case = continuing(rng)
    problem = case.problem
    mu = 0.99 * problem.pi + 0.01 * problem.mu
    return replace(case, problem=replace(problem, mu=mu, discount=0.9))


@theorem("B8-fixed-point", RANDOM, continuing)
def _fixed_point(case: Case) -> float:
    """Retrace's operator has the fixed point Q^π, and no row of its matrix sums to more than γ(1 - β)/(1 - γβ) ≤ γ."""
    operator = _operator(case)
    problem, matrix = case.problem, operator.as_matrix()
    value = problem.mdp.value(problem.pi, problem.discount)
    q_pi = (problem.mdp.r + problem.discount * problem.mdp.dense_kernel() @ value).ravel()
    rows = matrix.sum(axis=1).max()
    return max(
        relative(operator.apply(q_pi) - q_pi, q_pi),
        float(rows) - operator.sup_modulus,
        operator.sup_modulus - problem.discount,
        -float(matrix.min()),
    )


@refuted("B8-alone", FULL + ", law d_μ(s)μ(a|s)", continuing)
def _alone(case: Case) -> float:
    """traces alone make TD on the data's own law stable with every feature."""
    problem = case.problem
    matrix = _operator(case, 1.0).as_matrix()
    return worst_feature_radius(matrix, _law(problem.d_mu, problem.mu)) - 1.0


@theorem("B8-ratio-alone", FULL + ", law d_π(s)π(a|s)", continuing)
def _ratio_alone(case: Case) -> float:
    """The ratio alone, that is c·ρ and λ = 0, contracts with the modulus γ exactly."""
    problem = case.problem
    norm = induced_norm(_operator(case, 0.0).as_matrix(), _law(problem.d_pi, problem.pi))
    return abs(norm - problem.discount)


@theorem("B8-near", NEAR + ", law d_π(s)π(a|s), λ from 0 to 1", _near, broken_by="B8-hurts")
def _near_policies(case: Case) -> float:
    """Let R be the largest ρ. Where (1 - β)(1 - λ/R) < (1 - γβ)(1 - γλ), Retrace under the exact c·ρ has a modulus of at most γ√(left/right) < γ: better than the ratio alone."""
    operator = _operator(case, float(case.rng.uniform(0.1, 0.9)))
    problem, bound = case.problem, operator.near_modulus()
    norm = induced_norm(operator.as_matrix(), _law(problem.d_pi, problem.pi))
    return max(norm - bound, bound - problem.discount)


@refuted("B8-hurts", FULL + ", law d_π(s)π(a|s)", continuing)
def _hurts(case: Case) -> float:
    """Retrace under the exact c·ρ of π is stable with every feature, as one step is. Traces lead elsewhere than π does."""
    problem = case.problem
    return (
        worst_feature_radius(_operator(case, 1.0).as_matrix(), _law(problem.d_pi, problem.pi)) - 1.0
    )


@theorem(
    "B8-own-ratio",
    RANDOM + ", the traces' own law",
    continuing,
    broken_by="B8-hurts",
)
def _own_ratio(case: Case) -> float:
    """Under the traces' own law with γ̂ ≥ (r/γ)², r = γ(1 - β)/(1 - γβ), Retrace has a modulus of at most r√((1 - κ)/γ̂) < γ: both together beat the ratio alone for every π and μ that overlap."""
    problem, operator = case.problem, _operator(case, float(case.rng.uniform(0.1, 1.0)))
    least = (operator.sup_modulus / problem.discount) ** 2
    gamma = float(case.rng.uniform(least, 1.0 - 1e-6))
    d = _law(problem.d_mu, problem.mu)
    law = operator.own_law(d, gamma)
    kappa = (1.0 - gamma) * float((d / law).min())
    bound = operator.sup_modulus * float(np.sqrt((1.0 - kappa) / gamma))
    norm = induced_norm(operator.as_matrix(), law)
    return max(norm - bound, bound - problem.discount)
