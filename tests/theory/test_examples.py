import numpy as np
import pytest

from covshift.errors import InputError
from covshift.experiments.theory.claims.value import kolter_pole
from covshift.theory import ProjectedOperator, spectral_radius
from covshift.theory.examples import (
    bairds_star,
    boyan_chain,
    dirichlet,
    four_rooms,
    garnet,
    gridworld,
    kolter_chain,
    line_chain,
    open_grid,
    random_walk,
)


def test_bairds_star_diverges_under_mu_and_not_under_pi() -> None:
    star = bairds_star()
    np.testing.assert_allclose(star.d_mu, np.full(7, 1 / 7))
    np.testing.assert_allclose(star.d_pi, np.eye(7)[6], atol=1e-15)
    np.testing.assert_allclose(star.phi[0], [2, 0, 0, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(star.phi[6], [0, 0, 0, 0, 0, 0, 1, 2])
    # The expected TD step θ + α Φᵀ D (γP - I) Φ θ has a growing direction under d_μ only.
    for d, grows in ((star.d_mu, True), (star.d_pi, False)):
        step = (
            star.phi.T
            @ np.diag(d)
            @ (star.discount * np.asarray(star.chain_pi.p) - np.eye(7))
            @ star.phi
        )
        assert (np.linalg.eigvals(step).real.max() > 1e-3) == grows


def test_boyan_chain_has_value_minus_two_per_state() -> None:
    chain = boyan_chain()
    np.testing.assert_allclose(chain.bellman.fixed_point(), -2.0 * np.arange(1, 13))
    np.testing.assert_allclose(chain.phi @ [-24, -16, -8, 0], -2.0 * np.arange(1, 13))
    assert chain.d_mu[-1] == pytest.approx(1.0)


def test_kolter_chain_has_its_value_and_its_pole() -> None:
    problem = kolter_chain()
    np.testing.assert_allclose(problem.bellman.fixed_point(), [1.0, 1.05])
    np.testing.assert_allclose(problem.d_mu, [0.7, 0.3])
    pole = kolter_pole(problem)
    assert 0.7 < pole < 0.72
    at_pole = kolter_chain(pole)
    projected = ProjectedOperator(at_pole.bellman, at_pole.phi, at_pole.d_mu)
    assert projected.on_weights()[0, 0] == pytest.approx(1.0)


def test_random_walk_by_hand() -> None:
    # From the middle of 5 with equal chances V = ½, and one start is visited once under any policy.
    walk = random_walk(pi_right=0.5)
    assert walk.bellman.fixed_point()[2] == pytest.approx(0.5)
    assert walk.bellman.fixed_point()[-1] == pytest.approx(0.5)
    assert walk.d_pi[-1] == walk.d_mu[-1] == pytest.approx(1.0)
    back = random_walk(revisits_start=True)
    assert back.d_mu[2] > 1.5
    with pytest.raises(InputError, match="odd num_inner, but it is 4"):
        random_walk(4)


def test_four_rooms_is_the_map() -> None:
    rooms = four_rooms()
    assert rooms.mdp.num_states == 104
    # The goal leads to the start, whatever is done there.
    goal = int(np.flatnonzero(rooms.mdp.r[:, 0])[0])
    start = int(rooms.mdp.p[[goal * 4]].indices[0])  # type: ignore[union-attr]
    assert (goal, start) == (103, 94)
    assert rooms.d_mu.sum() == pytest.approx(1.0)


def test_gridworld_moves_by_hand() -> None:
    problem = gridworld("S.G", slip=0.0, epsilon=0.0)
    kernel = problem.mdp.dense_kernel()
    np.testing.assert_array_equal(kernel[0, 3], [0, 1, 0])
    np.testing.assert_array_equal(kernel[0, 2], [1, 0, 0])
    np.testing.assert_array_equal(kernel[1, 0], [0, 1, 0])
    np.testing.assert_array_equal(kernel[2, 0], [1, 0, 0])
    np.testing.assert_array_equal(problem.pi[:2, 3], [1.0, 1.0])
    slippery = gridworld("S.G", slip=0.4).mdp.dense_kernel()
    np.testing.assert_allclose(slippery[1, 3], [0.1, 0.2, 0.7])


@pytest.mark.parametrize(
    ("text", "message"),
    [("..", "exactly one 'S', but it has 0"), ("S#G", "1 cells cannot reach"), ("", "empty")],
)
def test_bad_maps_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gridworld(text)


def test_open_grid_equals_the_map_of_itself() -> None:
    ours, drawn = open_grid(3), gridworld("S..\n...\n..G")
    np.testing.assert_allclose(ours.mdp.dense_kernel(), drawn.mdp.dense_kernel())
    np.testing.assert_allclose(ours.pi, drawn.pi)


def test_generators_repeat_with_their_seed() -> None:
    for make in (dirichlet, garnet):
        first, second, other = (make(np.random.default_rng(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first.mdp.dense_kernel(), second.mdp.dense_kernel())
        assert np.abs(first.mdp.dense_kernel() - other.mdp.dense_kernel()).max() > 0.01


def test_garnet_has_the_given_branching() -> None:
    problem = garnet(np.random.default_rng(0), 8, 3, branching=3)
    assert ((problem.mdp.dense_kernel() > 0).sum(axis=2) == 3).all()
    with pytest.raises(InputError, match=r"branching must lie in \[1, 6\], but it is 7"):
        garnet(np.random.default_rng(0), branching=7)


def test_line_chain_is_sparse_and_uniform_under_mu() -> None:
    chain = line_chain(5000)
    assert chain.chain_pi.p.nnz < 20_000  # type: ignore[union-attr]
    assert chain.d_mu == pytest.approx(np.full(5000, 1 / 5000), rel=1e-6)
    with pytest.raises(InputError, match="at least 2 states"):
        line_chain(1)


def test_large_sparse_grid_meets_its_equations() -> None:
    problem = open_grid(60)
    c = problem.c_star(0.99)
    residual = problem.d_mu * (problem.cop.discounted(0.99).apply(c) - c)
    assert np.abs(residual).sum() < 1e-10
    assert np.abs(problem.chain_mu.push(problem.d_mu) - problem.d_mu).sum() < 1e-10
    v = problem.bellman.fixed_point()
    assert np.abs(problem.bellman.apply(v) - v).sum() < 1e-8
    assert spectral_radius(np.eye(2)) == 1.0
