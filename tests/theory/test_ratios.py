import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.theory import (
    MarkovChain,
    c_star,
    chi_squared,
    d_pi_hat,
    effective_sample_share,
    rho,
)
from covshift.theory.examples import bairds_star, dirichlet, episodic

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.floats(0.0, 0.98))
def test_discounted_distribution_is_a_sum_of_deviations(seed: int, gamma: float) -> None:
    problem = dirichlet(np.random.default_rng(seed), 4, 2)
    total, mass = np.zeros(4), problem.d_mu
    for step in range(2500):
        total += (1 - gamma) * gamma**step * mass
        mass = problem.chain_pi.push(mass)
    np.testing.assert_allclose(d_pi_hat(problem.chain_pi, problem.d_mu, gamma), total, atol=1e-10)


@given(SEEDS)
def test_discount_zero_gives_d_mu_and_one_gives_d_pi(seed: int) -> None:
    problem = dirichlet(np.random.default_rng(seed), 5, 2)
    np.testing.assert_allclose(problem.c_star(0.0), np.ones(5))
    np.testing.assert_allclose(problem.c_star(1.0), problem.d_pi / problem.d_mu)
    np.testing.assert_allclose(problem.c_star(1 - 1e-9), problem.c_star(1.0), rtol=1e-6)


@given(SEEDS, st.floats(0.0, 1.0))
def test_on_policy_data_have_ratio_one(seed: int, gamma: float) -> None:
    problem = dirichlet(np.random.default_rng(seed), 4, 2)
    np.testing.assert_allclose(c_star(problem.chain_pi, problem.d_pi, gamma), 1.0, atol=1e-8)
    walk = episodic(np.random.default_rng(seed), single_start=False)
    np.testing.assert_allclose(c_star(walk.chain_pi, walk.d_pi, gamma), 1.0, atol=1e-8)


def test_bairds_star_by_hand() -> None:
    # d_π is the seventh state and d_μ uniform: c = 7 there and 0 elsewhere. With γ̂ the chance of a
    # reset, 1 - γ̂, spreads (1 - γ̂)/7 over all: c = 1 - γ̂ and 1 - γ̂ + 7γ̂.
    star = bairds_star()
    np.testing.assert_allclose(star.c_star(), [0, 0, 0, 0, 0, 0, 7], atol=1e-15)
    np.testing.assert_allclose(star.c_star(0.9), [0.1] * 6 + [0.1 + 7 * 0.9])


def test_states_that_nobody_visits_have_ratio_zero() -> None:
    chain = MarkovChain(np.array([[1.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(c_star(chain, [1.0, 0.0]), [1.0, 0.0])


def test_uncovered_states_are_named() -> None:
    chain = MarkovChain(np.array([[0.5, 0.5], [0.5, 0.5]]))
    with pytest.raises(InputError, match=r"mass 0.5 on the states \{1\}, where d_mu is 0"):
        c_star(chain, [1.0, 0.0])


def test_rho_by_hand_and_its_error() -> None:
    np.testing.assert_allclose(
        rho([[0.2, 0.8], [1.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]]), [[0.4, 1.6], [1.0, 0.0]]
    )
    with pytest.raises(
        InputError, match=r"in state 1 the target policy takes action 0 .* never does"
    ):
        rho([[0.5, 0.5], [0.3, 0.7]], [[0.5, 0.5], [0.0, 1.0]])


def test_occupancies_are_checked() -> None:
    chain = MarkovChain(np.full((2, 2), 0.5))
    with pytest.raises(InputError, match="d_mu sums to 10, but it must sum to 1"):
        c_star(chain, [5.0, 5.0])
    with pytest.raises(InputError, match=r"pi has shape \(2,\), but \(any, any\) is needed"):
        rho([0.5, 0.5], [0.5, 0.5])
    walk = episodic(np.random.default_rng(0))
    with pytest.raises(InputError, match="d_mu counts visits, but one entry is -1"):
        c_star(walk.chain_pi, [-1.0, 1, 1, 1, 1])


def test_effective_sample_and_chi_squared_by_hand() -> None:
    d_mu, c = np.array([0.5, 0.5]), np.array([0.0, 2.0])
    assert effective_sample_share(c, d_mu) == pytest.approx(0.5)
    assert effective_sample_share(10 * c, 3 * d_mu) == pytest.approx(0.5)
    assert chi_squared(c * d_mu, d_mu) == pytest.approx(1.0)
    assert chi_squared(d_mu, np.array([1.0, 0.0])) == np.inf


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_discounts_outside_the_interval_are_refused(gamma: float) -> None:
    problem = dirichlet(np.random.default_rng(0))
    with pytest.raises(InputError, match=r"ratio_discount must lie in \[0, 1\], but it is"):
        problem.c_star(gamma)
