import numpy as np
import torch

from covshift.rules import (
    conservative_gap,
    epsilon_greedy_probabilities,
    followon_trace,
    importance_ratio,
    td_correction,
    td_error,
    tdc_correction,
)

ONE = np.ones(1)


def test_td_and_its_correction_by_hand() -> None:
    # 1 + 0.9·3 - 2 = 1.7.
    np.testing.assert_allclose(td_error(2 * ONE, ONE, 0.9 * ONE, 3 * ONE), [1.7])
    np.testing.assert_allclose(td_correction(2 * ONE, 0.75 * ONE), [1.5])
    np.testing.assert_allclose(td_error(2 * ONE, ONE, 0 * ONE, 3 * ONE), [-1.0])


def test_trace_and_tdc_by_hand() -> None:
    np.testing.assert_allclose(followon_trace(3 * ONE, 2 * ONE, 0.9), [6.4])
    h, phi_tm1, phi_t = np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]]), np.array([[0.0, 1.0]])
    # -ργ(φᵀh)φ' = -2·0.9·3·(0, 1).
    correction = tdc_correction(h, phi_tm1, phi_t, 2 * ONE, 0.9 * ONE)
    np.testing.assert_allclose(correction, [[0.0, -5.4]])


def test_the_conservative_gap_is_the_rest_of_the_log_sum() -> None:
    # log(e¹ + e² + e³) = 3.407606; large values must not overflow.
    q = np.array([[1.0, 2.0, 3.0], [1000.0, 1000.0, 0.0]])
    action = np.array([1, 0])
    np.testing.assert_allclose(conservative_gap(q, action), [1.407606, np.log(2)], rtol=1e-6)
    values = torch.tensor(q, requires_grad=True)
    conservative_gap(values, torch.tensor(action)).sum().backward()  # type: ignore[no-untyped-call]
    expected = torch.softmax(values.detach(), dim=-1) - torch.eye(3, dtype=torch.float64)[action]
    torch.testing.assert_close(values.grad, expected)


def test_epsilon_greedy_takes_the_first_best() -> None:
    q = np.array([[1.0, 3.0, 3.0, 0.0], [5.0, 1.0, 1.0, 1.0]])
    expected = np.array([[0.05, 0.85, 0.05, 0.05], [0.85, 0.05, 0.05, 0.05]])
    np.testing.assert_allclose(epsilon_greedy_probabilities(q, 0.2), expected)
    torch.testing.assert_close(
        epsilon_greedy_probabilities(torch.tensor(q), 0.2), torch.tensor(expected)
    )
    half = epsilon_greedy_probabilities(torch.tensor(q, dtype=torch.float32), 0.2)
    assert half.dtype == torch.float32
    np.testing.assert_allclose(importance_ratio(expected[:, 0], np.array([0.25, 0.25])), [0.2, 3.4])
