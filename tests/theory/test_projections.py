import numpy as np
import osqp
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.theory import (
    fit_span,
    project_span,
    project_weighted_simplex,
    span_projection,
    weighted_norm,
)

SEEDS = st.integers(0, 2**32 - 1)


def second_solver(w: np.ndarray, phi: np.ndarray, d_mu: np.ndarray) -> np.ndarray:
    """The same program by the operator-splitting solver OSQP."""
    solver = osqp.OSQP()
    solver.setup(
        P=sp.csc_matrix(np.eye(len(w))),
        q=-w,
        A=sp.csc_matrix(np.vstack([d_mu @ phi, phi])),
        l=np.concatenate([[1.0], np.zeros(len(phi))]),
        u=np.concatenate([[1.0], np.full(len(phi), np.inf)]),
        eps_abs=1e-10,
        eps_rel=1e-10,
        max_iter=200_000,
        polishing=True,
        verbose=False,
    )
    return np.asarray(solver.solve(raise_error=True).x)


@given(SEEDS)
def test_simplex_projection_agrees_with_a_second_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phi = np.column_stack([np.ones(7), rng.standard_normal((7, 3))])
    d_mu, w = rng.dirichlet(np.ones(7)), 2.0 * rng.standard_normal(4)
    ours = project_weighted_simplex(w, phi, d_mu)
    np.testing.assert_allclose(ours, second_solver(w, phi, d_mu), atol=1e-5)
    assert d_mu @ phi @ ours == pytest.approx(1.0, abs=1e-8)
    assert (phi @ ours).min() > -1e-8


@given(SEEDS)
def test_no_allowed_point_is_nearer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phi = np.column_stack([np.ones(5), rng.standard_normal((5, 2))])
    d_mu, w = rng.dirichlet(np.ones(5)), 2.0 * rng.standard_normal(3)
    ours = project_weighted_simplex(w, phi, d_mu)
    for _ in range(20):
        other = project_weighted_simplex(3 * rng.standard_normal(3), phi, d_mu)
        # The variational inequality of a projection onto a convex set.
        assert (w - ours) @ (other - ours) < 1e-7


def test_simplex_projection_with_one_hot_features_by_hand() -> None:
    # d_μ = (½, ½): onto u₁ + u₂ = 2, u ≥ 0. (3, 1) moves by -1 along (1, 1), (5, -1) is clamped.
    d_mu = np.array([0.5, 0.5])
    np.testing.assert_allclose(project_weighted_simplex([3.0, 1.0], np.eye(2), d_mu), [2.0, 0.0])
    np.testing.assert_allclose(
        project_weighted_simplex([5.0, -1.0], np.eye(2), d_mu), [2.0, 0.0], atol=1e-8
    )
    inside = project_weighted_simplex([1.5, 0.5], np.eye(2), d_mu)
    np.testing.assert_array_equal(inside, [1.5, 0.5])


def test_impossible_simplices_are_refused() -> None:
    with pytest.raises(InputError, match="no combination of the features is nonnegative"):
        project_weighted_simplex([1.0], np.array([[1.0], [-1.0]]), [0.7, 0.3])
    with pytest.raises(InputError, match="mean of the features under d_mu is 0"):
        project_weighted_simplex([1.0], np.array([[1.0], [-1.0]]), [0.5, 0.5])


@given(SEEDS)
def test_span_projection_is_the_nearest_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phi, d, x = rng.standard_normal((6, 2)), rng.dirichlet(np.ones(6)), rng.standard_normal(6)
    projected = project_span(x, phi, d)

    def distance(w: np.ndarray) -> float:
        return weighted_norm(phi @ w - x, d) ** 2

    nearest = scipy.optimize.minimize(distance, np.zeros(2))
    np.testing.assert_allclose(phi @ nearest.x, projected, atol=1e-3)
    np.testing.assert_allclose(phi.T @ (d * (x - projected)), 0.0, atol=1e-12)
    np.testing.assert_allclose(span_projection(phi, d) @ x, projected, atol=1e-9)
    np.testing.assert_allclose(phi @ fit_span(x, phi, d), projected)


def test_repeated_features_span_no_more() -> None:
    rng = np.random.default_rng(0)
    phi, d, x = rng.standard_normal((5, 2)), rng.dirichlet(np.ones(5)), rng.standard_normal(5)
    twice = np.hstack([phi, phi])
    np.testing.assert_allclose(project_span(x, twice, d), project_span(x, phi, d), atol=1e-10)
    np.testing.assert_allclose(span_projection(twice, d), span_projection(phi, d), atol=1e-10)
