import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.theory import (
    AffineOperator,
    BellmanOperator,
    CopOperator,
    MarkovChain,
    NormalizedCopOperator,
    ProjectedOperator,
    ResetTransition,
    as_dense,
    induced_norm,
    weighted_norm,
)
from covshift.theory.examples import Problem, dirichlet, episodic, tsitsiklis_van_roy

SEEDS = st.integers(0, 2**32 - 1)


def operators(problem: Problem, rng: np.random.Generator) -> list[AffineOperator]:
    size = problem.mdp.num_states
    phi, d = rng.standard_normal((size, 2)), rng.dirichlet(np.ones(size))
    discounted = problem.cop.discounted(0.7)
    chosen: list[AffineOperator] = [
        problem.bellman,
        discounted,
        discounted.power(3),
        ProjectedOperator(discounted, phi, d),
        ProjectedOperator(problem.bellman, phi, problem.d_pi),
    ]
    if not problem.mdp.is_episodic:
        chosen += [problem.cop, ResetTransition(problem.chain_pi, problem.d_mu, 0.7)]
    return chosen


@given(SEEDS, st.booleans())
def test_matrix_offset_and_fixed_point_agree_with_apply(seed: int, episodes: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = episodic(rng, 4, 2, single_start=False) if episodes else dirichlet(rng, 4, 2)
    for operator in operators(problem, rng):
        x = rng.standard_normal(4)
        expected = as_dense(operator.as_matrix()) @ x + operator.offset()
        np.testing.assert_allclose(operator.apply(x), expected, atol=1e-9)
        fixed = operator.fixed_point()
        np.testing.assert_allclose(operator.apply(fixed), fixed, atol=1e-7)


def test_cop_by_hand() -> None:
    # Two states, d_μ = (½, ½), π always to the second: Yc = (0, c₁ + c₂).
    operator = CopOperator(MarkovChain(np.array([[0.0, 1.0], [0.0, 1.0]])), np.array([0.5, 0.5]))
    np.testing.assert_allclose(operator.apply(np.array([1.0, 3.0])), [0.0, 4.0])
    # d_μ = (¼, ¾) weighs the first state a third as much: (c₁/3 + c₂).
    operator = CopOperator(MarkovChain(np.array([[0.0, 1.0], [0.0, 1.0]])), np.array([0.25, 0.75]))
    np.testing.assert_allclose(operator.apply(np.array([3.0, 3.0])), [0.0, 4.0])


def test_episodic_operator_by_hand() -> None:
    # Start 0 leads to 1, which ends. μ visits both once; π goes to 1 with probability ½ only.
    chain = MarkovChain(np.array([[0.0, 0.5], [0.0, 0.0]]), np.array([1.0, 0.0]))
    operator = CopOperator(chain, np.array([1.0, 1.0]), 0.8)
    # γ̂(0 + 1) + 1 - γ̂ = 1 at the start; γ̂·½·c(0) + 1 - γ̂ = 0.4·2 + 0.2 after it.
    np.testing.assert_allclose(operator.apply(np.array([2.0, 9.0])), [1.0, 1.0])
    np.testing.assert_allclose(operator.fixed_point(), [1.0, 0.6])


@given(SEEDS)
def test_a_discount_of_one_gives_cop(seed: int) -> None:
    problem = dirichlet(np.random.default_rng(seed), 4, 2)
    x = np.random.default_rng(seed).standard_normal(4)
    np.testing.assert_allclose(problem.cop.discounted(1.0).apply(x), problem.cop.apply(x))
    np.testing.assert_allclose(problem.cop.discounted(0.0).apply(x), np.ones(4))


@given(SEEDS)
def test_sparse_operators_equal_dense_ones(seed: int) -> None:
    problem = dirichlet(np.random.default_rng(seed), 4, 2)
    chain = MarkovChain(sp.csr_array(problem.chain_pi.p))
    x = np.random.default_rng(seed).standard_normal(4)
    sparse, dense = (CopOperator(c, problem.d_mu, 0.9) for c in (chain, problem.chain_pi))
    np.testing.assert_allclose(sparse.apply(x), dense.apply(x))
    np.testing.assert_allclose(as_dense(sparse.as_matrix()), as_dense(dense.as_matrix()))
    np.testing.assert_allclose(sparse.fixed_point(), dense.fixed_point())
    reset = ResetTransition(chain, problem.d_mu, 0.9)
    np.testing.assert_allclose(reset.apply(x), reset.as_matrix() @ x)


@given(SEEDS)
def test_projected_fixed_points_by_iteration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = dirichlet(rng, 5, 2, discount=0.5)
    projected = ProjectedOperator(problem.bellman, rng.standard_normal((5, 2)), problem.d_pi)
    v = np.zeros(5)
    for _ in range(200):
        v = projected.apply(v)
    np.testing.assert_allclose(projected.fixed_point(), v, atol=1e-9)
    moduli = np.abs(np.linalg.eigvals(projected.as_matrix()))
    assert np.abs(np.linalg.eigvals(projected.on_weights())).max() == pytest.approx(moduli.max())


def test_tsitsiklis_van_roy_diverges_beyond_five_sixths() -> None:
    # One feature (1, 2) under (½, ½): the step on θ is multiplied by 6γ/5.
    for discount in (0.5, 0.8, 0.9):
        problem = tsitsiklis_van_roy(discount)
        projected = ProjectedOperator(problem.bellman, problem.phi, problem.d_mu)
        assert projected.on_weights()[0, 0] == pytest.approx(6 * discount / 5)


@given(SEEDS)
def test_induced_norm_is_reached_and_not_exceeded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, d = rng.standard_normal((4, 4)), rng.dirichlet(np.ones(4)) + 1e-3
    norm = induced_norm(matrix, d)
    x = rng.standard_normal((4, 200))
    ratios = [weighted_norm(matrix @ column, d) / weighted_norm(column, d) for column in x.T]
    assert max(ratios) <= norm * (1 + 1e-12)
    root = np.sqrt(d)
    top = np.linalg.svd(root[:, None] * matrix / root)[2][0] / root
    assert weighted_norm(matrix @ top, d) / weighted_norm(top, d) == pytest.approx(norm)


def test_repeated_features_have_the_same_fixed_point_and_a_pole_has_none() -> None:
    rng = np.random.default_rng(0)
    problem = dirichlet(rng, 5, 2)
    phi = rng.standard_normal((5, 2))
    once, twice = (
        ProjectedOperator(problem.bellman, features, problem.d_pi).fixed_point()
        for features in (phi, np.hstack([phi, phi]))
    )
    np.testing.assert_allclose(once, twice, atol=1e-8)
    swap = MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]]))
    # Φ = (1, 1/γ) on the first state alone: φ(φ - γφ') = 0 there, and the reward is not.
    bellman = BellmanOperator(swap, np.array([1.0, 0.0]), 0.5)
    pole = ProjectedOperator(bellman, np.array([[1.0], [2.0]]), np.array([1.0, 0.0]))
    with pytest.raises(InputError, match="the projected equation has no solution"):
        pole.fixed_point()


def test_bad_operators_are_refused() -> None:
    problem = dirichlet(np.random.default_rng(0), 3, 2)
    with pytest.raises(InputError, match=r"d_mu\[1\] = 0; leave such states out"):
        CopOperator(problem.chain_pi, np.array([0.5, 0.0, 0.5]), 0.9)
    with pytest.raises(InputError, match=r"d_mu has shape \(2,\), but \(3,\) is needed"):
        CopOperator(problem.chain_pi, np.array([0.5, 0.5])).apply(np.ones(3))
    with pytest.raises(InputError, match="num_steps must be at least 1, but it is 0"):
        problem.cop.power(0)
    with pytest.raises(InputError, match="mean 0 under d_mu"):
        NormalizedCopOperator(problem.chain_pi, problem.d_mu).apply(np.zeros(3))
    walk = episodic(np.random.default_rng(0))
    with pytest.raises(InputError, match="continuing chains"):
        NormalizedCopOperator(walk.chain_pi, walk.d_mu)
    with pytest.raises(InputError, match=r"discount must lie in \[0, 1\)"):
        BellmanOperator(problem.chain_pi, np.zeros(3), 1.0)
    with pytest.raises(InputError, match="the reset function is for continuing chains"):
        ResetTransition(walk.chain_pi, walk.d_mu, 0.9)
