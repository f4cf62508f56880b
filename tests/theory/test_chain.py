import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.theory import MarkovChain, as_dense, total_variation
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
def test_a_state_that_is_hardly_ever_visited_is_no_trouble(size: int, sparse: bool) -> None:
    """The first state's mass is (0.58/0.42)^-size of the last one's: 1e-17 to 1e-140."""
    p = as_dense(line_chain(size).chain_pi.p)
    expected = (0.42 / 0.58) ** np.arange(size)[::-1]
    expected /= expected.sum()
    for order in (np.arange(size), np.arange(size)[::-1]):
        shuffled = p[np.ix_(order, order)]
        found = MarkovChain(sp.csr_array(shuffled) if sparse else shuffled).stationary()
        np.testing.assert_allclose(found, expected[order], atol=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_state_that_is_left_for_good_in_floating_point_is_no_trouble(sparse: bool) -> None:
    p = np.array([[0.0, 1.0], [1e-20, 1.0]])
    found = MarkovChain(sp.csr_array(p) if sparse else p).stationary()
    np.testing.assert_allclose(found, [1e-20, 1.0], rtol=1e-12)


def test_what_does_not_balance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covshift.theory.chain._anchored", lambda block, anchor: np.eye(7)[0])
    with pytest.raises(InputError, match="cannot be found in floating point"):
        line_chain(7).chain_pi.stationary()


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


def test_rows_within_the_tolerance_and_stored_zeros_are_taken() -> None:
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


def test_visits_of_a_sure_path() -> None:
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
