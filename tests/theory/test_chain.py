import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.theory import MarkovChain, as_dense, total_variation
from covshift.theory.chain import _eliminate
from covshift.theory.examples import dirichlet, episodic, four_rooms, line_chain

SEEDS = st.integers(0, 2**32 - 1)


def random_chain(seed: int) -> MarkovChain:
    return dirichlet(np.random.default_rng(seed), 5, 2).chain_pi


@given(SEEDS)
def test_stationary_distribution_is_the_limit_of_the_powers(seed: int) -> None:
    chain = random_chain(seed)
    powers = np.linalg.matrix_power(np.asarray(chain.p), 4000)
    np.testing.assert_allclose(chain.stationary(), powers[0], atol=1e-10)


def test_stationary_distribution_of_a_walk_has_its_closed_form() -> None:
    # Detailed balance on a line: d(i+1)/d(i) = right/left with right = 0.6·0.9 + 0.4·0.1 = 0.58.
    expected = (0.58 / 0.42) ** np.arange(7)
    np.testing.assert_allclose(line_chain(7).d_pi, expected / expected.sum(), rtol=1e-12)


@pytest.mark.parametrize("size", [120, 200, 1000])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_state_that_is_hardly_ever_visited_does_no_harm(size: int, sparse: bool) -> None:
    """The first state's mass is (0.58/0.42)^-size of the last one's: 1e-17 to 1e-140."""
    p = as_dense(line_chain(size).chain_pi.p)
    expected = (0.42 / 0.58) ** np.arange(size)[::-1]
    expected /= expected.sum()
    for order in (np.arange(size), np.arange(size)[::-1]):
        shuffled = p[np.ix_(order, order)]
        found = MarkovChain(sp.csr_array(shuffled) if sparse else shuffled).stationary()
        np.testing.assert_allclose(found, expected[order], atol=1e-13)


def test_small_chains_are_exact_in_every_entry() -> None:
    size = 300
    p = as_dense(line_chain(size).chain_pi.p)
    expected = (0.42 / 0.58) ** np.arange(size)[::-1]
    found = MarkovChain(p).stationary()
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-11)
    assert found[0] < 1e-40


@pytest.mark.parametrize("sparse", [False, True])
def test_a_state_that_is_left_for_good_in_floating_point_does_no_harm(sparse: bool) -> None:
    p = np.array([[0.0, 1.0], [1e-20, 1.0]])
    found = MarkovChain(sp.csr_array(p) if sparse else p).stationary()
    np.testing.assert_allclose(found, [1e-20, 1.0], rtol=1e-12)


def two_wells(size: int, coupling: float) -> tuple[np.ndarray, np.ndarray]:
    """Two walks of `size` states, of which the second is left three times as often, and the exact distribution.

    Moves within a well are symmetric, so its states have equal mass; across, d(first) · coupling = d(second) · 3 coupling.
    """
    well = 0.5 * (np.eye(size, k=1) + np.eye(size, k=-1))
    well[0, 0] = well[-1, -1] = 0.5
    p = np.kron(np.eye(2), well)
    p[size - 1, size], p[size, size - 1] = coupling, 3.0 * coupling
    return p, np.repeat([0.75, 0.25], size) / size


@pytest.mark.parametrize("size", [2, 40, 200])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("coupling", [1e-11, 1e-18, 1e-30])
def test_parts_that_are_hardly_coupled_have_the_masses_of_their_balance(
    size: int, sparse: bool, coupling: float
) -> None:
    p, expected = two_wells(size, coupling)
    for order in (np.arange(2 * size), np.random.default_rng(0).permutation(2 * size)):
        shuffled = p[np.ix_(order, order)]
        found = MarkovChain(sp.csr_array(shuffled) if sparse else shuffled).stationary()
        np.testing.assert_allclose(found, expected[order], rtol=1e-9)


def test_elimination_agrees_with_a_factorization() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(301), size=301)
    by_factors = MarkovChain(p).stationary()
    np.testing.assert_allclose(by_factors, _eliminate(p), rtol=1e-12)


def test_masses_beyond_the_range_of_floating_point_are_0() -> None:
    """The first of 450 states has (0.14/0.86)^449 = 1e-354 of the last one's mass."""
    p = as_dense(line_chain(450, pi_right=0.95).chain_pi.p)
    for order in (slice(None), slice(None, None, -1)):
        found = _eliminate(p[order, order])[order]
        assert found[0] == 0.0
        assert found[-1] == pytest.approx(1.0 - 0.14 / 0.86)


def test_a_large_chain_with_hardly_coupled_parts_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covshift.theory.chain._DENSE", 300)
    p, _ = two_wells(200, 1e-18)
    with pytest.raises(InputError, match="400 states cannot be found in floating point"):
        MarkovChain(sp.csr_array(p)).stationary()


def test_transient_states_get_no_mass() -> None:
    chain = MarkovChain(np.array([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7], [0.0, 0.6, 0.4]]))
    # The recurrent pair balances 0.7 d(1) = 0.6 d(2).
    np.testing.assert_allclose(chain.stationary(), [0.0, 6 / 13, 7 / 13], atol=1e-15)


def test_several_recurrent_classes_are_named() -> None:
    p = np.eye(4)
    p[0] = [0.0, 0.5, 0.5, 0.0]
    with pytest.raises(InputError, match=r"3 recurrent classes \(\{1\}, \{2\}, \{3\}\)"):
        MarkovChain(p).stationary()


def test_sparse_and_dense_agree() -> None:
    problem = four_rooms()
    sparse = problem.chain_pi
    dense = MarkovChain(as_dense(sparse.p))
    np.testing.assert_allclose(sparse.stationary(), dense.stationary(), rtol=1e-9, atol=1e-13)
    b = np.random.default_rng(0).standard_normal(sparse.num_states)
    for beta in (0.0, 0.9, 0.9999):
        ours, theirs = sparse.resolvent(beta), dense.resolvent(beta)
        np.testing.assert_allclose(ours.solve(b), theirs.solve(b), rtol=1e-9)
        np.testing.assert_allclose(
            ours.solve_transposed(b), theirs.solve_transposed(b), rtol=1e-8, atol=1e-10
        )


@given(SEEDS, st.floats(0.0, 0.99))
def test_resolvent_is_the_sum_of_discounted_powers(seed: int, discount: float) -> None:
    chain = random_chain(seed)
    b = np.random.default_rng(seed).standard_normal(5)
    forward, backward = np.zeros(5), np.zeros(5)
    term_f, term_b = b, b
    for _ in range(3000):
        forward, backward = forward + term_f, backward + term_b
        term_f, term_b = discount * chain.p @ term_f, discount * chain.push(term_b)
    np.testing.assert_allclose(chain.resolvent(discount).solve(b), forward, atol=1e-8)
    np.testing.assert_allclose(chain.resolvent(discount).solve_transposed(b), backward, atol=1e-8)


def test_rounded_rows_and_stored_zeros_are_accepted() -> None:
    rounded = MarkovChain(np.round(np.full((3, 3), 1 / 3), 10))
    np.testing.assert_allclose(rounded.stationary(), np.full(3, 1 / 3))
    stored = sp.csr_array(
        (np.array([1.0, 0.0, 0.0, 1.0]), ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2)
    )
    with pytest.raises(InputError, match="2 recurrent classes"):
        MarkovChain(stored).stationary()


def test_a_chain_is_not_changed_from_outside() -> None:
    p = np.full((2, 2), 0.5)
    chain = MarkovChain(p)
    p[0] = [1.0, 0.0]
    np.testing.assert_allclose(chain.stationary(), [0.5, 0.5])
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(chain.p)[0, 0] = 7


def test_an_episode_that_never_ends_is_named() -> None:
    chain = MarkovChain(np.array([[0.0, 0.5], [0.0, 1.0]]), np.array([1.0, 0.0]))
    with pytest.raises(InputError, match=r"never end from the states \{1\}"):
        chain.visits()


def test_visits_by_hand() -> None:
    # 0 -> 1 with probability 1, 1 ends with probability 1/4: one visit and then four.
    chain = MarkovChain(np.array([[0.0, 1.0], [0.0, 0.75]]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(chain.visits(), [1.0, 4.0])


@given(SEEDS)
def test_restart_spends_its_time_like_the_visits(seed: int) -> None:
    problem = episodic(np.random.default_rng(seed), single_start=False)
    for chain in (problem.chain_pi, MarkovChain(sp.csr_array(problem.chain_pi.p), problem.mdp.d_0)):
        visits = chain.visits()
        np.testing.assert_allclose(chain.restart().stationary(), visits / visits.sum(), atol=1e-10)
    again = problem.restart().chain_pi
    np.testing.assert_allclose(
        as_dense(again.p), as_dense(problem.chain_pi.restart().p), atol=1e-12
    )


def test_mixing_rate_of_two_states() -> None:
    # Eigenvalues of [[1-a, a], [b, 1-b]] are 1 and 1-a-b.
    assert MarkovChain(np.array([[0.9, 0.1], [0.3, 0.7]])).mixing_rate() == pytest.approx(0.6)


def test_total_variation_is_half_the_distance() -> None:
    assert total_variation([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (np.array([[0.5, 0.6], [0.5, 0.5]]), "row 0 of p sums to 1.1, but it must sum to 1"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "negative probability: -0.5"),
        (np.array([[np.nan, 1.0], [0.5, 0.5]]), "not a finite number: nan"),
        (np.ones((2, 3)) / 3, r"shape \(2, 3\), but a square matrix"),
        (sp.csr_array(np.array([[0.5, 0.6], [0.5, 0.5]])), "row 0 of p sums to 1.1"),
    ],
)
def test_bad_matrices_are_refused(p: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MarkovChain(p)
