from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covshift.rules import (
    discounted_cop_target,
    initial_state_target,
    inverse_ratio_weight,
    n_step_cop_target,
    squared_ratio_error,
)

C, RHO, C_T = np.array([2.0, 0.5]), np.array([0.5, 4.0]), np.array([1.0, 1.5])


def test_targets_and_losses_by_hand() -> None:
    # 0.9·1 + 0.1 = 1 and 0.9·2 + 0.1 = 1.9.
    np.testing.assert_allclose(discounted_cop_target(C, RHO, 0.9), [1.0, 1.9])
    np.testing.assert_allclose(squared_ratio_error(np.array([1.9]), np.array([1.5])), [0.16])


def test_the_target_at_the_ends_of_the_discount_and_on_policy() -> None:
    np.testing.assert_array_equal(discounted_cop_target(C, RHO, 1.0), RHO * C)
    np.testing.assert_allclose(discounted_cop_target(C, RHO, 0.0), [1.0, 1.0])
    np.testing.assert_allclose(discounted_cop_target(np.ones(2), np.ones(2), 0.7), [1.0, 1.0])


def test_initial_states_have_target_one_even_after_nan_or_infinity() -> None:
    target = initial_state_target(np.array([np.nan, 3.0, np.inf]), np.array([True, False, True]))
    np.testing.assert_array_equal(target, [1.0, 3.0, 1.0])


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0.0, 1.0))
def test_n_step_target_is_the_closed_form(seed: int, n: int, gamma: float) -> None:
    # (1 - γ̂) Σ_{i<n} γ̂ⁱ Π_{j=n-i}^{n-1} ρ_j + γ̂ⁿ (Π_{j<n} ρ_j) c, with the latest ρ's in the products.
    rng = np.random.default_rng(seed)
    rhos, c = rng.random(n) * 3, rng.random()
    expected = gamma**n * rhos.prod() * c
    for i in range(n):
        expected += (1 - gamma) * gamma**i * rhos[n - i :].prod()
    target = n_step_cop_target(np.array([c]), [np.array([r]) for r in rhos], gamma)
    np.testing.assert_allclose(target, [expected])


def test_n_step_targets_restart_with_an_episode() -> None:
    rhos = [np.array([5.0]), np.array([7.0]), np.array([2.0])]
    initial = [np.array([False]), np.array([True]), np.array([False])]
    # The second step leads to an episode's first state, with ratio 1: 0.5·2·1 + 0.5.
    target = n_step_cop_target(np.array([9.0]), rhos, 0.5, is_initial=initial)
    np.testing.assert_allclose(target, [1.5])


@pytest.mark.parametrize("of", [np.array, torch.tensor])
def test_inverse_weights_have_a_floor(of: Any) -> None:
    weights = inverse_ratio_weight(of([4.0, 0.5, 0.1, -3.0]), 0.25)
    np.testing.assert_array_equal(np.asarray(weights), [0.25, 2.0, 4.0, 4.0])


def test_torch_tensors_give_the_same() -> None:
    c, rho = (torch.tensor(x) for x in (C, RHO))
    torch.testing.assert_close(
        discounted_cop_target(c, rho, 0.9), torch.tensor(discounted_cop_target(C, RHO, 0.9))
    )
    flags = np.array([True, False])
    torch.testing.assert_close(
        n_step_cop_target(c, [rho, rho], 0.9, is_initial=[torch.tensor(flags)] * 2),
        torch.tensor(n_step_cop_target(C, [RHO, RHO], 0.9, is_initial=[flags] * 2)),
    )
    assert initial_state_target(c, torch.tensor(flags)).dtype == c.dtype


def test_half_the_squared_loss_has_the_semi_gradient() -> None:
    # Gradient descent on ½(target - c')² with the target held fixed is eq. (6)'s step.
    c_t = torch.tensor(C_T, requires_grad=True)
    target = torch.tensor(discounted_cop_target(C, RHO, 0.9))
    (0.5 * squared_ratio_error(target, c_t)).sum().backward()  # type: ignore[no-untyped-call]
    assert c_t.grad is not None
    assert -c_t.grad.numpy() == pytest.approx(discounted_cop_target(C, RHO, 0.9) - C_T)
