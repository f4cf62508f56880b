import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.theory import FiniteMDP, as_dense, uniform_policy
from covshift.theory.examples import dirichlet, episodic

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_chain_and_reward_by_plain_loops(seed: int) -> None:
    problem = dirichlet(np.random.default_rng(seed), 4, 3)
    kernel = problem.mdp.dense_kernel()
    for s in range(4):
        for t in range(4):
            expected = sum(problem.pi[s, a] * kernel[s, a, t] for a in range(3))
            assert np.asarray(problem.chain_pi.p)[s, t] == pytest.approx(expected)
        reward = sum(problem.pi[s, a] * problem.mdp.r[s, a] for a in range(3))
        assert problem.mdp.r_pi(problem.pi)[s] == pytest.approx(reward)


@given(SEEDS)
def test_sparse_kernel_gives_the_same_chain_and_value(seed: int) -> None:
    problem = dirichlet(np.random.default_rng(seed), 4, 3)
    rows = sp.csr_array(problem.mdp.dense_kernel().reshape(12, 4))
    sparse = FiniteMDP(rows, problem.mdp.r)
    chain = sparse.chain(problem.pi)
    np.testing.assert_allclose(as_dense(chain.p), as_dense(problem.chain_pi.p))
    np.testing.assert_allclose(sparse.value(problem.pi, 0.9), problem.mdp.value(problem.pi, 0.9))
    np.testing.assert_allclose(sparse.dense_kernel(), problem.mdp.dense_kernel())


@given(SEEDS)
def test_value_is_the_discounted_sum_of_rewards(seed: int) -> None:
    problem = episodic(np.random.default_rng(seed))
    total, probability = np.zeros(5), np.eye(5)
    for step in range(2000):
        total += 0.95**step * probability @ problem.mdp.r_pi(problem.pi)
        probability = probability @ np.asarray(problem.chain_pi.p)
    np.testing.assert_allclose(problem.mdp.value(problem.pi, 0.95), total, atol=1e-9)


@given(SEEDS)
def test_restart_leads_ends_to_starts(seed: int) -> None:
    mdp = episodic(np.random.default_rng(seed), single_start=False).mdp
    assert mdp.d_0 is not None
    kernel = mdp.dense_kernel()
    expected = kernel + (1 - kernel.sum(axis=2))[:, :, None] * mdp.d_0
    np.testing.assert_allclose(mdp.restart().dense_kernel(), expected)
    sparse = FiniteMDP(sp.csr_array(kernel.reshape(-1, mdp.num_states)), mdp.r, mdp.d_0)
    np.testing.assert_allclose(sparse.restart().dense_kernel(), expected)
    assert not mdp.restart().is_episodic


def test_undiscounted_value_only_for_episodes() -> None:
    rng = np.random.default_rng(0)
    assert np.isfinite(episodic(rng).mdp.value(episodic(rng).pi, 1.0)).all()
    continuing = dirichlet(rng)
    with pytest.raises(InputError, match=r"discount must lie in \[0, 1\), but it is 1.0"):
        continuing.mdp.value(continuing.pi, 1.0)


def test_a_value_that_does_not_exist_is_refused() -> None:
    for kernel in (np.ones((1, 1, 1)), sp.csr_array(np.ones((1, 1)))):
        mdp = FiniteMDP(kernel, np.ones((1, 1)), np.ones(1))
        with pytest.raises(InputError, match=r"never end from the states \{0\}"):
            mdp.value(np.ones((1, 1)), 1.0)


def test_uniform_policy() -> None:
    np.testing.assert_array_equal(
        uniform_policy(dirichlet(np.random.default_rng(0), 2, 4).mdp), np.full((2, 4), 0.25)
    )


HALF = np.full((2, 2, 2), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((HALF * 1.2, np.zeros((2, 2))), "sums to 1.2, but it must sum to 1"),
        ((HALF, np.zeros(2)), r"r has shape \(2,\), but \(any, any\) is needed"),
        ((HALF, np.zeros((3, 2))), r"p has shape \(2, 2, 2\), but \(3, 2, 3\) is needed"),
        ((sp.csr_array(np.eye(2)), np.zeros((2, 2))), r"sparse p has shape \(2, 2\)"),
        ((HALF, np.full((2, 2), np.inf)), "r has an entry that is not a finite number: inf"),
        ((HALF, np.zeros((2, 2)), np.array([0.5, 0.4])), "d_0 sums to 0.9"),
        ((HALF * 1.2, np.zeros((2, 2)), np.array([0.5, 0.5])), "must sum to at most 1"),
    ],
)
def test_bad_mdps_are_refused(arguments: tuple[np.ndarray, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FiniteMDP(*arguments)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.full((2, 2), 0.6), "row 0 of policy sums to 1.2"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "policy has a negative probability: -0.5"),
        (np.full((2, 3), 1 / 3), r"policy has shape \(2, 3\), but \(2, 2\) is needed"),
    ],
)
def test_bad_policies_are_refused(policy: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FiniteMDP(HALF, np.zeros((2, 2))).chain(policy)
