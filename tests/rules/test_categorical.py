import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covshift.rules import (
    categorical_projection,
    categorical_target,
    chosen,
    cross_entropy,
    expected_value,
)

SUPPORT = np.linspace(-10.0, 10.0, 51)


def twin(atoms: np.ndarray, p: np.ndarray, support: np.ndarray) -> np.ndarray:
    """The loop of the C51 paper's Algorithm 1."""
    spacing = support[1] - support[0]
    result = np.zeros_like(p)
    for k in range(len(p)):
        for j in range(len(support)):
            b = (min(max(atoms[k, j], support[0]), support[-1]) - support[0]) / spacing
            low, high = int(np.floor(b)), int(np.ceil(b))
            if low == high:
                result[k, low] += p[k, j]
            else:
                result[k, low] += p[k, j] * (high - b)
                result[k, high] += p[k, j] * (b - low)
    return result


@given(st.integers(0, 10_000))
def test_the_projection_equals_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(51), size=4)
    atoms = rng.normal(0, 8, size=(4, 1)) + rng.uniform(-1, 1.2) * SUPPORT
    np.testing.assert_allclose(
        categorical_projection(atoms, p, SUPPORT), twin(atoms, p, SUPPORT), atol=1e-12
    )


def test_targets_by_hand() -> None:
    z = np.array([0.0, 1.0, 2.0])
    p = np.array([[0.5, 0.0, 0.5]])
    # 0.5 + 0.5·{0, 2} = {0.5, 1.5}: half of each half goes down, half up.
    target = categorical_target(np.array([0.5]), np.array([0.5]), p, z)
    np.testing.assert_allclose(target, [[0.25, 0.5, 0.25]])
    # Where the episode ended only the reward is left.
    ended = categorical_target(np.array([1.0]), np.array([0.0]), p, z)
    np.testing.assert_allclose(ended, [[0.0, 1.0, 0.0]])
    # Beyond the support all mass is at its end.
    np.testing.assert_allclose(
        categorical_target(np.array([9.0]), np.array([0.9]), p, z), [[0.0, 0.0, 1.0]]
    )


def test_projection_keeps_mass_and_mean_within_the_support() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(51), size=20)
    reward, discount = rng.uniform(-0.09, 0.09, 20), np.full(20, 0.99)
    target = categorical_target(reward, discount, p, SUPPORT)
    np.testing.assert_allclose(target.sum(axis=1), 1.0)
    np.testing.assert_allclose(
        expected_value(target, SUPPORT), reward + 0.99 * expected_value(p, SUPPORT)
    )


def test_cross_entropy_is_least_at_the_target() -> None:
    p = np.array([[0.2, 0.3, 0.5]])
    at_target = cross_entropy(p, np.log(p))
    np.testing.assert_allclose(
        at_target, -(0.2 * np.log(0.2) + 0.3 * np.log(0.3) + 0.5 * np.log(0.5))
    )
    assert cross_entropy(p, np.log(np.full((1, 3), 1 / 3)))[0] > at_target[0]


@pytest.mark.parametrize("seed", [0, 1])
def test_torch_tensors_give_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, atoms = rng.dirichlet(np.ones(51), size=3), rng.normal(size=(3, 51))
    tensor = categorical_projection(*(torch.from_numpy(x) for x in (atoms, p, SUPPORT)))
    np.testing.assert_allclose(tensor.numpy(), categorical_projection(atoms, p, SUPPORT))
    q = torch.arange(6.0).view(2, 3)
    assert chosen(q, torch.tensor([2, 0])).tolist() == [2.0, 3.0]
