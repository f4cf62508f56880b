"""Theorems 2 and 3, Corollary 1, Proposition 1, Lemma 2, and the errata on them."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.claims.cases import (
    Case,
    continuing,
    paths,
    relative,
    small,
    with_transient,
)
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.rules import discounted_cop_target
from covshift.theory import (
    CopOperator,
    MarkovChain,
    NormalizedCopOperator,
    ResetTransition,
    as_dense,
)
from covshift.validation import Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
RANDOM = "random aperiodic irreducible MDPs (Dirichlet and Garnet, 2–8 states)"
TRANSIENT = "random aperiodic MDPs (Dirichlet and Garnet), π with or without a transient state"
UNREACHED = RANDOM + ", with an absorbing state, and a state that neither d_μ nor π visits"
TWO_CYCLE = MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]]))


def steps_to_converge(rate: float) -> int:
    """How many applications bring an error that shrinks by `rate` below 1e-12."""
    return int(np.ceil(np.log(1e-12) / np.log(max(rate, 1e-3)))) + 20


def _limit_of_y(case: Case, c_0: Vector) -> Vector:
    problem = case.problem
    num_steps = steps_to_converge(problem.chain_pi.mixing_rate())
    return problem.cop.power(num_steps).as_matrix() @ c_0


def _reset(case: Case) -> ResetTransition:
    return ResetTransition(case.problem.chain_pi, case.problem.d_mu, case.ratio_discount)


@theorem(
    "theorem-2",
    TRANSIENT + ", normal c⁰",
    with_transient,
    tolerance=1e-6,
    broken_by="E15-periodic",
)
def _theorem_2(case: Case) -> float:
    """Yᵏc⁰ → C d_π/d_μ with C = Σ d_μ c⁰, from any c⁰."""
    c_0 = case.vector()
    expected = (case.problem.d_mu @ c_0) * case.problem.c_star()
    return relative(_limit_of_y(case, c_0) - expected, c_0)


@refuted("E2-sign", RANDOM + ", normal c⁰", continuing)
def _positive_limit(case: Case) -> float:
    """the limit of Yᵏc⁰ is a positive multiple of d_π/d_μ whatever c⁰ is."""
    return -float(_limit_of_y(case, case.vector()).min())


@refuted("E15-periodic", "a 2-cycle, random d_μ", continuing, cases=50)
def _periodic(case: Case) -> float:
    """one recurrent class is enough for the iterates of Y to converge. On a cycle they alternate."""
    cop = CopOperator(TWO_CYCLE, case.rng.dirichlet(np.ones(2)))
    c_0 = case.vector()[:2]
    return float(np.abs(cop.power(1001).apply(c_0) - cop.power(1000).apply(c_0)).max())


@theorem(
    "corollary-1",
    TRANSIENT + ", positive c⁰",
    with_transient,
    tolerance=1e-6,
    broken_by="E1-printed-division",
)
def _corollary_1(case: Case) -> float:
    """Iterates of Ȳ, which divides by Σ d_μ c̃, converge to d_π/d_μ."""
    problem = case.problem
    normalized = NormalizedCopOperator(problem.chain_pi, problem.d_mu)
    c = case.rng.random(problem.mdp.num_states)
    for _ in range(steps_to_converge(problem.chain_pi.mixing_rate())):
        c = normalized.apply(c)
    return relative(c - problem.c_star(), problem.c_star())


@refuted("E1-printed-division", RANDOM, continuing)
def _printed_division(case: Case) -> float:
    """iterates of Y that are divided by Σ c̃, as Corollary 1 prints it, converge to d_π/d_μ."""
    limit = _limit_of_y(case, case.rng.random(case.problem.mdp.num_states))
    return relative(limit / limit.sum() - case.problem.c_star(), limit)


@refuted("E1-other-fixed-points", RANDOM, continuing)
def _other_fixed_point(case: Case) -> float:
    """Corollary 1's printed operator has one fixed point. Other eigenvectors of Y are fixed too."""
    y = as_dense(case.problem.cop.as_matrix())
    values, vectors = np.linalg.eig(y)
    c = case.problem.c_star()
    farthest = 0.0
    for k in range(len(values)):
        vector = vectors[:, k].real
        if abs(values[k].imag) > 1e-12 or abs(values[k]) < 1e-3 or abs(vector.sum()) < 1e-3:
            continue
        fixed = vector / vector.sum()
        image = y @ fixed
        if np.allclose(image / image.sum(), fixed, atol=1e-9):
            farthest = max(farthest, float(np.abs(fixed - c / c.sum()).max()))
    return farthest


@theorem("E3-rows", RANDOM, continuing)
def _rows_sum_to_one(case: Case) -> float:
    """γ̂P_π + (1 - γ̂) e d_μᵀ, whose reset has rows d_μ, is a transition function: its rows sum to 1."""
    return float(np.abs(_reset(case).as_matrix().sum(axis=0) - 1.0).max())


@refuted("E3-columns", RANDOM, continuing)
def _printed_columns(case: Case) -> float:
    """γ̂P_π + (1 - γ̂) d_μ eᵀ, whose reset has columns d_μ, is a transition function."""
    gamma = case.ratio_discount
    printed = gamma * as_dense(case.problem.chain_pi.p) + (1 - gamma) * case.problem.d_mu[:, None]
    return float(np.abs(printed.sum(axis=1) - 1.0).max())


@theorem("proposition-1", RANDOM + ", γ̂ < 1", continuing)
def _proposition_1(case: Case) -> float:
    """d̂_π = (1 - γ̂)(I - γ̂P_πᵀ)⁻¹d_μ is the stationary distribution of the reset chain."""
    reset = _reset(case)
    d_hat = reset.fixed_point()
    return max(float(np.abs(reset.apply(d_hat) - d_hat).max()), abs(float(d_hat.sum()) - 1.0))


@theorem("E19-one-class", UNREACHED, continuing)
def _one_recurrent_class(case: Case) -> float:
    """The reset chain has one recurrent class, also where π has two, and so a unique stationary distribution: d̂_π."""
    reset = _with_unreached_state(case)
    return float(np.abs(MarkovChain(reset.as_matrix().T).stationary() - reset.fixed_point()).max())


@refuted("E19-reset", UNREACHED, continuing)
def _reset_without_coverage(case: Case) -> float:
    """the reset makes the chain ergodic whatever d_μ is. The state that d_μ leaves out is never visited again."""
    # In an ergodic chain every state is visited from every state after enough steps.
    return float((np.linalg.matrix_power(_with_unreached_state(case).as_matrix(), 100) == 0).mean())


def _with_unreached_state(case: Case) -> ResetTransition:
    """The reset of a chain with two recurrent classes and a state that no state leads to; d_μ is 0 there."""
    size = case.problem.mdp.num_states
    p = np.zeros((size + 2, size + 2))
    p[:size, :size] = as_dense(case.problem.chain_pi.p)
    p[size, size] = 1.0
    p[size + 1, :size] = case.rng.dirichlet(np.ones(size))
    d_mu = np.append(0.5 * case.problem.d_mu, [0.5, 0.0])
    return ResetTransition(MarkovChain(p), d_mu, case.ratio_discount)


@refuted("E4-weights", RANDOM, continuing)
def _swapped_weights(case: Case) -> float:
    """d̂_π is the stationary distribution of (1 - γ̂)P_πᵀ + γ̂ d_μ eᵀ, with the weights swapped as printed."""
    swapped = ResetTransition(case.problem.chain_pi, case.problem.d_mu, 1.0 - case.ratio_discount)
    d_hat = _reset(case).fixed_point()
    return float(np.abs(swapped.apply(d_hat) - d_hat).max())


@theorem("lemma-2", RANDOM + ", γ̂ < 1", continuing, broken_by="lemma-2-needs-discount")
def _lemma_2(case: Case) -> float:
    """For γ̂ < 1, d̂_π/d_μ is the unique fixed point of Y_γ̂, and the spectral radius of γ̂Y is γ̂."""
    operator = case.problem.cop.discounted(case.ratio_discount)
    fixed = relative(operator.apply(case.c) - case.c, case.c)
    return max(fixed, abs(operator.spectral_radius() - case.ratio_discount))


@refuted("lemma-2-needs-discount", RANDOM + ", γ̂ = 1", continuing)
def _lemma_2_at_one(case: Case) -> float:
    """the fixed point of Y_γ̂ is unique at γ̂ = 1. Twice a fixed point is one too."""
    c = case.problem.c_star()
    return float(np.abs(2 * c - c).max()) - relative(case.problem.cop.apply(2 * c) - 2 * c, c)


@theorem(
    "theorem-3",
    TRANSIENT + ", γ̂ < 1, normal c⁰",
    with_transient,
    broken_by="lemma-2-needs-discount",
)
def _theorem_3(case: Case) -> float:
    """Y_γ̂ᵏc⁰ → d̂_π/d_μ from any c⁰, whatever its mean."""
    operator = case.problem.cop.discounted(case.ratio_discount)
    c_0 = 10.0 * case.vector()
    # Y_γ̂ᵏ c⁰ by powers of [[A, b], [0, 1]], which does not presuppose the fixed point.
    size = len(c_0)
    affine = np.eye(size + 1)
    affine[:size, :size], affine[:size, size] = as_dense(operator.as_matrix()), operator.offset()
    power = np.linalg.matrix_power(affine, steps_to_converge(case.ratio_discount))
    return relative((power @ np.append(c_0, 1.0))[:size] - case.c, c_0)


@refuted("E5-limit", RANDOM, continuing)
def _printed_limit(case: Case) -> float:
    """the limit of Y_γ̂ᵏc⁰ is (1 - γ̂)D⁻¹(I - γ̂Y)⁻¹d_μ. It is (1 - γ̂)(I - γ̂Y)⁻¹e."""
    problem, gamma = case.problem, case.ratio_discount
    system = np.eye(problem.mdp.num_states) - gamma * as_dense(problem.cop.as_matrix())
    printed = (1 - gamma) * np.linalg.solve(system, problem.d_mu) / problem.d_mu
    return relative(printed - case.c, case.c)


@theorem("E18-expectation", "3 states, 2 actions, all transitions enumerated", small, cases=60)
def _expected_target(case: Case) -> float:
    """Y_γ̂c(s') = E[γ̂ρc(s) + 1 - γ̂ | s']."""
    problem, gamma = case.problem, case.ratio_discount
    c = case.vector()
    total = np.zeros(problem.mdp.num_states)
    for probability, states, actions in paths(problem, 1):
        rho = problem.rho[states[0], actions[0]]
        total[states[1]] += probability * float(
            discounted_cop_target(np.asarray(c[states[0]]), np.asarray(rho), gamma)
        )
    return relative(total / problem.d_mu - problem.cop.discounted(gamma).apply(c), c)


@refuted("E18-printed-bar", "3 states, 2 actions", small, cases=60)
def _printed_bar(case: Case) -> float:
    """Y_γ̂c(s') is E[E[γ̂ρc(s) | s'] + 1 - γ̂], with the bar inside. That does not depend on s'."""
    problem = case.problem
    c = case.vector()
    image = problem.cop.discounted(case.ratio_discount).apply(c)
    return relative(problem.d_mu @ image - image, c)
