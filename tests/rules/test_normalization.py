import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.rules import (
    leave_one_out_residual,
    normalization_gradient,
    normalization_loss,
    one_sided_residual,
)


def test_loss_and_gradient_by_hand() -> None:
    assert normalization_loss(np.asarray(3.0)) == pytest.approx(2.0)
    np.testing.assert_allclose(
        normalization_gradient(np.asarray(3.0), np.array([1.0, -2.0])), [2, -4]
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_leave_one_out_by_plain_loops(seed: int, size: int) -> None:
    c = np.random.default_rng(seed).standard_normal((3, size))
    expected = np.empty_like(c)
    for row in range(3):
        for i in range(size):
            others = [c[row, j] for j in range(size) if j != i]
            expected[row, i] = sum(others) / (size - 1) - 1.0
    np.testing.assert_allclose(leave_one_out_residual(c), expected)
    np.testing.assert_allclose(one_sided_residual(c), expected[:, 0])
    torch.testing.assert_close(leave_one_out_residual(torch.tensor(c)), torch.tensor(expected))


def test_surrogate_loss_has_theorem_5s_gradient() -> None:
    rng = np.random.default_rng(0)
    phi = torch.tensor(rng.standard_normal((6, 2)))
    w = torch.tensor(rng.standard_normal(2), requires_grad=True)
    c = phi @ w
    (leave_one_out_residual(c.detach()) * c).mean().backward()  # type: ignore[no-untyped-call]
    residual = leave_one_out_residual((phi @ w).detach().numpy())
    expected = (residual[:, None] * phi.numpy()).mean(axis=0)
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), expected)


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2 states, but it has 1"):
        leave_one_out_residual(np.ones(1))
