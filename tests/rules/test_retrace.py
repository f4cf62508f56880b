"""Retrace against a sum over actions that follows Gruslys et al. (2018), and against exact values."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covshift.rules import (
    categorical_target,
    expected_value,
    importance_ratio,
    retrace_coefficient,
    retrace_target,
)
from covshift.theory.examples import Problem, dirichlet, episodic

SUPPORT = np.linspace(-10.0, 10.0, 21)


def twin(
    rewards: list[float],
    discount: float,
    p: list[np.ndarray],
    pi: list[np.ndarray],
    mu: list[np.ndarray],
    actions: list[int],
    decay: float,
) -> np.ndarray:
    """Σ_k Σ_a α_{k,a} Proj(R_k + γᵏ Z(s_k, a)), one atom after the other; s_1 is the first entry of each list."""
    n, target = len(rewards), np.zeros(len(SUPPORT))
    spacing = SUPPORT[1] - SUPPORT[0]
    for k in range(1, n + 1):
        total = sum(discount**i * rewards[i] for i in range(k))
        before = 1.0
        for j in range(1, k):
            a = actions[j - 1]
            before *= decay * min(1.0, pi[j - 1][a] / mu[j - 1][a])
        for a in range(len(pi[0])):
            alpha = pi[k - 1][a]
            if k < n and a == actions[k - 1]:
                alpha -= decay * min(1.0, pi[k - 1][a] / mu[k - 1][a])
            for z, mass in zip(SUPPORT, p[k - 1][a], strict=True):
                x = min(max(total + discount**k * z, SUPPORT[0]), SUPPORT[-1])
                b = (x - SUPPORT[0]) / spacing
                low = min(int(b), len(SUPPORT) - 2)
                target[low] += before * alpha * mass * (1 - (b - low))
                target[low + 1] += before * alpha * mass * (b - low)
    return target


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_the_target_is_the_sum_over_steps_and_actions(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    batch, actions, discount, decay = 3, 4, 0.9, rng.uniform(0.5, 1.0)
    pi, mu = rng.dirichlet(np.ones(actions), size=(2, n, batch))
    p = rng.dirichlet(np.ones(len(SUPPORT)), size=(n, batch, actions))
    taken = rng.integers(actions, size=(n - 1, batch))
    rewards = rng.normal(size=(n, batch))
    returns = np.cumsum(discount ** np.arange(n)[:, None] * rewards, axis=0)
    k, b = np.arange(n - 1)[:, None], np.arange(batch)
    traces = retrace_coefficient(
        importance_ratio(pi[k, b, taken], mu[k, b, taken]), np.full((n - 1, batch), decay)
    )
    discounts = np.repeat(discount ** np.arange(1, n + 1)[:, None], batch, axis=1)
    p_pi = (pi[..., None] * p).sum(axis=2)
    found = retrace_target(returns, discounts, p_pi, p[k, b, taken], traces, SUPPORT)
    for sample in range(batch):
        expected = twin(
            list(rewards[:, sample]),
            discount,
            list(p[:, sample]),
            list(pi[:, sample]),
            list(mu[:, sample]),
            list(taken[:, sample]),
            decay,
        )
        np.testing.assert_allclose(found[sample], expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    tensors = retrace_target(
        *(torch.from_numpy(x) for x in (returns, discounts, p_pi, p[k, b, taken], traces, SUPPORT))
    )
    np.testing.assert_allclose(tensors.numpy(), found, atol=1e-12)


def test_one_step_is_the_categorical_target() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(len(SUPPORT)), size=(1, 4))
    returns, discounts = rng.normal(size=(1, 4)), np.full((1, 4), 0.9)
    none = np.zeros((0, 4))
    found = retrace_target(returns, discounts, p, np.zeros((0, 4, len(SUPPORT))), none, SUPPORT)
    np.testing.assert_array_equal(
        found, categorical_target(returns[0], discounts[0], p[0], SUPPORT)
    )


def with_mean(q: np.ndarray) -> np.ndarray:
    """Distributions on the support with these means: the two atoms around each."""
    return np.asarray(np.clip(1.0 - np.abs(q[..., None] - SUPPORT), 0.0, 1.0))


def expected_means(problem: Problem, q: np.ndarray, decay: float, n: int) -> np.ndarray:
    """The mean of the target of each (s₀, a₀), over all paths of n steps under μ; by the rule itself."""
    kernel, discount = problem.mdp.dense_kernel(), problem.discount
    num_states, num_actions = q.shape
    p = with_mean(q)
    found = np.zeros_like(q)
    for s, a in product(range(num_states), range(num_actions)):
        ended_first = 1.0 - kernel[s, a].sum()
        # Each path is (probability, rewards, states, actions); an episode that ends leaves the path short.
        paths: list[Any] = [
            (kernel[s, a, t], [problem.mdp.r[s, a]], [t], [-1]) for t in range(num_states)
        ]
        done: list[Any] = [(ended_first, [problem.mdp.r[s, a]], [], [])]
        for _ in range(n - 1):
            longer = []
            for chance, rewards, states, actions in paths:
                for b in range(num_actions):
                    now = chance * problem.mu[states[-1], b]
                    row, gained = kernel[states[-1], b], [*rewards, problem.mdp.r[states[-1], b]]
                    acts = [*actions[:-1], b]
                    done.append((now * (1.0 - row.sum()), gained, states, acts))
                    longer += [
                        (now * row[t], gained, [*states, t], [*acts, -1]) for t in range(num_states)
                    ]
            paths = longer
        for chance, rewards, states, actions in [*paths, *done]:
            if chance <= 0:
                continue
            length = len(rewards)
            returns = np.cumsum(discount ** np.arange(length) * rewards)[:, None]
            discounts = discount ** np.arange(1.0, length + 1)[:, None]
            seen = np.array(states, dtype=int)
            p_pi = (problem.pi[seen][..., None] * p[seen]).sum(axis=1)
            if len(seen) < length:  # The episode ended: there is no last state.
                discounts[-1] = 0.0
                p_pi = np.concatenate([p_pi, p[:1, 0]])
            before, taken = seen[: length - 1], np.array(actions[: length - 1], dtype=int)
            rho = importance_ratio(problem.pi[before, taken], problem.mu[before, taken])
            target = retrace_target(
                returns,
                discounts,
                p_pi[:, None],
                p[before, taken][:, None],
                retrace_coefficient(rho, decay)[:, None],
                SUPPORT,
            )
            found[s, a] += chance * float(expected_value(target, SUPPORT)[0])
    return found


@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("kind", ["continuing", "episodic"])
def test_the_expected_target_has_the_fixed_point_q_pi(decay: float, kind: str) -> None:
    rng = np.random.default_rng(4)
    made = dirichlet(rng, 3, 2) if kind == "continuing" else episodic(rng, 3, 2)
    problem = Problem(made.mdp, made.pi, made.mu, discount=0.8)
    value = problem.mdp.value(problem.pi, 0.8)
    q_pi = problem.mdp.r + 0.8 * problem.mdp.dense_kernel() @ value
    assert np.abs(q_pi).max() < 5.0  # Far from the ends of the support, so that nothing is clipped.
    np.testing.assert_allclose(expected_means(problem, q_pi, decay, 3), q_pi, atol=1e-10)
    other = q_pi + rng.uniform(-1.0, 1.0, size=q_pi.shape)
    error = np.abs(other - q_pi).max()
    first = np.abs(expected_means(problem, other, decay, 3) - q_pi).max()
    assert 0.0 < first <= 0.8 * error  # It contracts at least as one step does.


def test_a_trace_is_cut_at_one() -> None:
    assert retrace_coefficient(np.array([0.25, 1.0, 8.0]), 0.5).tolist() == [0.125, 0.5, 0.5]
