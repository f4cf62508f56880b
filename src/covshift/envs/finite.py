"""The finite MDPs of `theory` as Gymnasium environments, whose exact ratios are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from covshift.theory.examples import (
    Problem,
    bairds_star,
    boyan_chain,
    four_rooms,
    line_chain,
    random_walk,
)

EXAMPLES: dict[str, Callable[[], Problem]] = {
    "BairdsStar": bairds_star,
    "BoyanChain": boyan_chain,
    "FourRooms": four_rooms,
    "LineChain": lambda: line_chain(10),
    "RandomWalk": random_walk,
}
"""Registered as `covshift/<name>-v0`."""

CONTINUING_CAP = 1000
"""The most steps of an episode; collection needs episodes that end, also of a continuing example."""


@final
class FiniteMDPEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A finite MDP whose observations are one-hot states; `problem` has the exact d_π, d_μ and c.

    An episodic MDP starts from its d₀. A continuing one starts from the stationary distribution d_μ of the
    example's own behavior policy, so that the states of truncated episodes follow d_μ too.

    Args:
        problem: the MDP with its two policies, or the name of an example.
    """

    def __init__(self, problem: Problem | str) -> None:
        self.problem = EXAMPLES[problem]() if isinstance(problem, str) else problem
        mdp = self.problem.mdp
        self.observation_space = spaces.Box(0, 1, (mdp.num_states,), np.uint8)
        self.action_space = spaces.Discrete(mdp.num_actions)
        kernel = mdp.dense_kernel()
        ends = np.maximum(1.0 - kernel.sum(axis=2, keepdims=True), 0.0)
        self._next = np.cumsum(np.concatenate([kernel, ends], axis=2), axis=2)
        start = self.problem.d_mu if mdp.d_0 is None else mdp.d_0
        self._start = np.cumsum(start / start.sum())
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Draws a first state."""
        super().reset(seed=seed, options=options)
        self._state = self._draw(self._start)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Draws the next state; when the episode ends, the observation is all zeros."""
        reward = float(self.problem.mdp.r[self._state, action])
        arrived = self._draw(self._next[self._state, action])
        terminated = self.problem.mdp.is_episodic and arrived == self.problem.mdp.num_states
        if terminated:
            return np.zeros_like(self._observation()), reward, True, False, {}
        self._state = min(arrived, self.problem.mdp.num_states - 1)
        return self._observation(), reward, False, False, {}

    def _draw(self, cumulative: NDArray[np.float64]) -> int:
        return int(np.searchsorted(cumulative, self.np_random.random(), side="right"))

    def _observation(self) -> NDArray[np.uint8]:
        one_hot = np.zeros(self.problem.mdp.num_states, dtype=np.uint8)
        one_hot[min(self._state, len(one_hot) - 1)] = 1
        return one_hot


def register_finite_mdps() -> None:
    """Registers the examples with Gymnasium as `covshift/<name>-v0`."""
    for name in EXAMPLES:
        env_id = f"covshift/{name}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="covshift.envs.finite:FiniteMDPEnv",
                kwargs={"problem": name},
                max_episode_steps=CONTINUING_CAP,
            )
