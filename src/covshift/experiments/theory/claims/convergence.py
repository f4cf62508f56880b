"""Theorems 2 and 3, Corollary 1, Proposition 1, Lemma 2, and the errata on them."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims.cases import (
    Case,
    continuing,
    paths,
    relative,
    small,
    with_transient,
)
from covshift.rules import discounted_cop_target
from covshift.theory import (
    CopOperator,
    MarkovChain,
    NormalizedCopOperator,
    ResetTransition,
    as_dense,
)
from covshift.validation import Vector


def steps_to_converge(rate: float) -> int:
    """How many applications bring an error that shrinks by `rate` below 1e-12."""
    return int(np.ceil(np.log(1e-12) / np.log(max(rate, 1e-3)))) + 20


def _limit_of_y(case: Case, c_0: Vector) -> Vector:
    problem = case.problem
    num_steps = steps_to_converge(problem.chain_pi.mixing_rate())
    return problem.cop.power(num_steps).as_matrix() @ c_0


def _theorem_2(case: Case) -> float:
    c_0 = case.vector()
    expected = (case.problem.d_mu @ c_0) * case.problem.c_star()
    return relative(_limit_of_y(case, c_0) - expected, c_0)


def _theorem_2_positive(case: Case) -> float:
    """Minus the smallest entry of the limit: positive where the limit is no positive multiple."""
    return -float(_limit_of_y(case, case.vector()).min())


def _two_cycle(case: Case) -> float:
    """How far an even and an odd iterate on a 2-cycle stay apart."""
    d_mu = case.rng.dirichlet(np.ones(2))
    cop = CopOperator(MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]])), d_mu)
    c_0 = case.vector()[:2]
    return float(np.abs(cop.power(1001).apply(c_0) - cop.power(1000).apply(c_0)).max())


def _corollary_1(case: Case) -> float:
    problem = case.problem
    normalized = NormalizedCopOperator(problem.chain_pi, problem.d_mu)
    c = case.rng.random(problem.mdp.num_states)
    for _ in range(steps_to_converge(problem.chain_pi.mixing_rate())):
        c = normalized.apply(c)
    return relative(c - problem.c_star(), problem.c_star())


def _printed_normalization(case: Case) -> float:
    """How far the limit under the printed division, by Σ c̃, is from d_π/d_μ."""
    limit = _limit_of_y(case, case.rng.random(case.problem.mdp.num_states))
    return relative(limit / limit.sum() - case.problem.c_star(), limit)


def _other_fixed_point(case: Case) -> float:
    """Distance of a second fixed point of the printed operator from the first, 0 if none is real."""
    y = as_dense(case.problem.cop.as_matrix())
    values, vectors = np.linalg.eig(y)
    c = case.problem.c_star()
    found = 0.0
    for k in range(len(values)):
        vector = vectors[:, k].real
        if abs(values[k].imag) > 1e-12 or abs(values[k]) < 1e-3 or abs(vector.sum()) < 1e-3:
            continue
        fixed = vector / vector.sum()
        image = y @ fixed
        if np.allclose(image / image.sum(), fixed, atol=1e-9):
            found = max(found, float(np.abs(fixed - c / c.sum()).max()))
    return found


def _rows_sum_to_one(case: Case) -> float:
    reset = _reset(case)
    return float(np.abs(reset.as_matrix().sum(axis=0) - 1.0).max())


def _columns_as_printed(case: Case) -> float:
    """How far the rows are from summing to 1 if the reset's columns are d_μ."""
    problem = case.problem
    d_mu, gamma = problem.d_mu, case.ratio_discount
    printed = gamma * as_dense(problem.chain_pi.p) + (1 - gamma) * d_mu[:, None]
    return float(np.abs(printed.sum(axis=1) - 1.0).max())


def _reset(case: Case) -> ResetTransition:
    return ResetTransition(case.problem.chain_pi, case.problem.d_mu, case.ratio_discount)


def _proposition_1(case: Case) -> float:
    reset = _reset(case)
    d_hat = reset.fixed_point()
    return max(float(np.abs(reset.apply(d_hat) - d_hat).max()), abs(float(d_hat.sum()) - 1.0))


def _printed_reset(case: Case) -> float:
    """How far d̂_π is from fixed if the weights of step and reset are swapped."""
    swapped = ResetTransition(case.problem.chain_pi, case.problem.d_mu, 1.0 - case.ratio_discount)
    d_hat = _reset(case).fixed_point()
    return float(np.abs(swapped.apply(d_hat) - d_hat).max())


def _lemma_2(case: Case) -> float:
    operator = case.problem.cop.discounted(case.ratio_discount)
    fixed = relative(operator.apply(case.c) - case.c, case.c)
    return max(fixed, abs(operator.spectral_radius() - case.ratio_discount))


def _lemma_2_at_one(case: Case) -> float:
    """Distance of another fixed point at γ̂ = 1 from the first."""
    c = case.problem.c_star()
    return float(np.abs(2 * c - c).max()) - relative(case.problem.cop.apply(2 * c) - 2 * c, c)


def _theorem_3(case: Case) -> float:
    operator = case.problem.cop.discounted(case.ratio_discount)
    c_0 = 10.0 * case.vector()
    # Y_γ̂ᵏ c⁰ by powers of [[A, b], [0, 1]], which does not presuppose the fixed point.
    size = len(c_0)
    affine = np.eye(size + 1)
    affine[:size, :size], affine[:size, size] = as_dense(operator.as_matrix()), operator.offset()
    power = np.linalg.matrix_power(affine, steps_to_converge(case.ratio_discount))
    return relative((power @ np.append(c_0, 1.0))[:size] - case.c, c_0)


def _printed_limit(case: Case) -> float:
    """How far (1 - γ̂)(I - γ̂Y)⁻¹ d_μ is from the ratio."""
    problem, gamma = case.problem, case.ratio_discount
    system = np.eye(problem.mdp.num_states) - gamma * as_dense(problem.cop.as_matrix())
    return relative((1 - gamma) * np.linalg.solve(system, problem.d_mu) - case.c, case.c)


def _expected_target(case: Case) -> float:
    """Y_γ̂c against the conditional expectation of the target, by enumeration."""
    problem, gamma = case.problem, case.ratio_discount
    c = case.vector()
    total = np.zeros(problem.mdp.num_states)
    for probability, states, actions in paths(problem, 1):
        rho = problem.rho[states[0], actions[0]]
        total[states[1]] += probability * float(
            discounted_cop_target(np.asarray(c[states[0]]), np.asarray(rho), gamma)
        )
    operator = problem.cop.discounted(gamma)
    return relative(total / problem.d_mu - operator.apply(c), c)


def _bar_as_printed(case: Case) -> float:
    """The bar inside: conditioning on s' only the first term, and adding 1 - γ̂ outside it.

    Read literally, the constant is averaged over all transitions together with a conditional that
    then is a random variable of s', so that the result does not depend on s'.
    """
    problem, gamma = case.problem, case.ratio_discount
    c = case.vector()
    image = problem.cop.discounted(gamma).apply(c)
    return relative(problem.d_mu @ image - image, c)


RANDOM = "random aperiodic irreducible MDPs (Dirichlet and Garnet, 2–8 states)"
TRANSIENT = "random aperiodic MDPs (Dirichlet and Garnet), π with or without a transient state"

CLAIMS = [
    Claim(
        "theorem-2",
        "Yᵏc⁰ → C d_π/d_μ with C = Σ d_μ c⁰, from any c⁰ (E2).",
        TRANSIENT + ", normal c⁰",
        with_transient,
        _theorem_2,
        tolerance=1e-6,
        broken_by="E15-periodic",
    ),
    Claim(
        "E2-sign",
        "Refuted: the limit is a positive multiple of d_π/d_μ whatever c⁰ is.",
        RANDOM + ", normal c⁰",
        continuing,
        _theorem_2_positive,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "E15-periodic",
        "Refuted: one recurrent class is enough for the iterates of Y to converge.",
        "a 2-cycle, random d_μ",
        continuing,
        _two_cycle,
        refutes=True,
        tolerance=1e-2,
        cases=50,
    ),
    Claim(
        "corollary-1",
        "Ȳ, which divides by Σ d_μ c̃ (E1), converges to d_π/d_μ.",
        TRANSIENT + ", positive c⁰",
        with_transient,
        _corollary_1,
        tolerance=1e-6,
        broken_by="E1-printed-division",
    ),
    Claim(
        "E1-printed-division",
        "Refuted: dividing by Σ c̃ converges to d_π/d_μ.",
        RANDOM,
        continuing,
        _printed_normalization,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "E1-other-fixed-points",
        "Refuted: the printed operator has one fixed point. Other eigenvectors of Y are fixed too.",
        RANDOM,
        continuing,
        _other_fixed_point,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "E3-rows",
        "γ̂P_π + (1 - γ̂) e d_μᵀ, whose reset rows are d_μ, is a transition function.",
        RANDOM,
        continuing,
        _rows_sum_to_one,
    ),
    Claim(
        "E3-columns",
        "Refuted: with columns d_μ it is one too.",
        RANDOM,
        continuing,
        _columns_as_printed,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "proposition-1",
        "d̂_π = (1 - γ̂)(I - γ̂P_πᵀ)⁻¹d_μ is the stationary distribution of the reset chain.",
        RANDOM + ", γ̂ < 1",
        continuing,
        _proposition_1,
    ),
    Claim(
        "E4-weights",
        "Refuted: so it is with (1 - γ̂)P_πᵀ + γ̂ d_μ eᵀ.",
        RANDOM,
        continuing,
        _printed_reset,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "lemma-2",
        "For γ̂ < 1, d̂_π/d_μ is the unique fixed point of Y_γ̂; the radius of γ̂Y is γ̂.",
        RANDOM + ", γ̂ < 1",
        continuing,
        _lemma_2,
        broken_by="lemma-2-needs-discount",
    ),
    Claim(
        "lemma-2-needs-discount",
        "Refuted: the fixed point is unique at γ̂ = 1.",
        RANDOM + ", γ̂ = 1",
        continuing,
        _lemma_2_at_one,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "theorem-3",
        "Y_γ̂ᵏc⁰ → d̂_π/d_μ from any c⁰, whatever its mean (E2).",
        TRANSIENT + ", γ̂ < 1, normal c⁰",
        with_transient,
        _theorem_3,
        broken_by="lemma-2-needs-discount",
    ),
    Claim(
        "E5-limit",
        "Refuted: the limit is (1 - γ̂)(I - γ̂Y)⁻¹d_μ. It is that with e in place of d_μ.",
        RANDOM,
        continuing,
        _printed_limit,
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "E18-expectation",
        "Y_γ̂c(s') = E[γ̂ρc(s) + 1 - γ̂ | s'].",
        "3 states, 2 actions, all transitions enumerated",
        small,
        _expected_target,
        cases=60,
    ),
    Claim(
        "E18-printed-bar",
        "Refuted: the bar may stand inside, E[E[γ̂ρc(s) | s'] + 1 - γ̂]; that does not depend on s'.",
        "3 states, 2 actions",
        small,
        _bar_as_printed,
        refutes=True,
        tolerance=1e-2,
        cases=60,
    ),
]
