"""A replay for a hand-written loop that learns the covariate shift and draws by it."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, final

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError
from covshift.integrations.episode_check import EpisodeCheck
from covshift.integrations.ratio_priorities import (
    TEMPERING,
    Policy,
    RatioPriorities,
    checked_policy,
)
from covshift.validation import check_count

_TOLD_STARTS = 3
"""Episodes after which a vector environment that resets in a step of its own is noticed."""


class ReplayBatch(NamedTuple):
    """Transitions, as arrays whose first axis is the batch.

    Attributes:
        observations: the states that were acted in.
        actions: the actions taken.
        rewards: the rewards that followed.
        next_observations: the states arrived at.
        terminated: where there is nothing to bootstrap from; a timeout does not count.
    """

    observations: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    next_observations: NDArray[Any]
    terminated: NDArray[np.bool_]


@final
class RatioReplay:
    """Replay that draws transitions by √c(s) or another power of c(s) = d_π(s)/d(s), where d are the states in the replay.

    Add each step with the probability μ(a|s) of its action, call `update` with the current policy as often as you
    sample, and learn your values from `sample`. The oldest steps are overwritten when the replay is full. It can be
    pickled.

    Args:
        capacity: the most steps that are kept, of all environments together.
        observation_space: a Box of vectors, of stacked frames (channels first), or of small grids (channels last).
        action_space: a Discrete space.
        num_envs: environments that are stepped together; if there are several, all arguments of `add` have a first
            axis of this length.
        ratio_discount: γ̂, the ratio's discount.
        learning_rate: Adam's step size for the ratio's network.
        tempering: the power of c that transitions are drawn in proportion to: 1 corrects in full, 0 draws uniformly.
        seed: of the ratio's network and of all draws.
        device: where the ratio's network lives.

    Example:
        >>> replay = RatioReplay(100, spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
        >>> replay.add(np.zeros(2), 1, 0.5, np.ones(2), False, False, mu=0.25)
        >>> replay.update(lambda observations: np.full((len(observations), 3), 1 / 3))
        >>> replay.sample(4).actions
        array([1, 1, 1, 1])
    """

    def __init__(
        self,
        capacity: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        num_envs: int = 1,
        *,
        ratio_discount: float = 0.99,
        learning_rate: float = 0.00025,
        tempering: float = TEMPERING,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        shape, self.num_actions = check_spaces(observation_space, action_space)
        self.num_envs = num_envs = check_count("num_envs", num_envs)
        rows = check_count("capacity", capacity) // num_envs
        self.priorities = RatioPriorities(
            rows,
            num_envs,
            shape,
            ratio_discount=ratio_discount,
            learning_rate=learning_rate,
            tempering=tempering,
            seed=seed,
            device=device,
        )
        self.observations = np.zeros((rows, num_envs, *shape), dtype=observation_space.dtype)
        self.next_observations = np.zeros_like(self.observations)
        self.actions = np.zeros((rows, num_envs), dtype=np.int64)
        self.rewards = np.zeros((rows, num_envs), dtype=np.float32)
        self.terminated = np.zeros((rows, num_envs), dtype=bool)
        self._starts_seen, self._all_reset = 0, True

    def __len__(self) -> int:
        return min(self.priorities.steps, len(self.actions)) * self.num_envs

    @property
    def mean_ratio(self) -> float:
        """E_μ[c]: running mean of c over the replay."""
        return self.priorities.mean_ratio

    @property
    def effective_share(self) -> float:
        """ESS/N of c over the replay: 1 if all states have the same ratio."""
        return self.priorities.effective_share

    def add(
        self,
        observation: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_observation: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        mu: ArrayLike,
    ) -> None:
        """Adds a step of each environment.

        Args:
            observation: the state that was acted in.
            action: the action taken.
            reward: the reward that followed.
            next_observation: the state arrived at; where the episode ended its last state, not the next one's first.
            terminated: whether the episode ended there.
            truncated: whether the episode was cut off there, by a time limit for example.
            mu: probability with which the action was taken.
        """
        shape = self.observations.shape[1:]
        observed = _shaped("observation", observation, shape, self.observations.dtype)
        arrived = _shaped("next_observation", next_observation, shape, self.observations.dtype)
        given = np.asarray(action)
        if given.dtype.kind not in "biuf" or (given % 1 != 0).any():
            raise InputError(f"action must be a whole number, but it is {action!r}")
        taken = _shaped("action", action, (self.num_envs,), np.int64)
        outside = (taken < 0) | (taken >= self.num_actions)
        if outside.any():
            raise InputError(
                f"action {taken[outside][0]} is outside the space of {self.num_actions} actions, 0 … {self.num_actions - 1}"
            )
        rewards = _shaped("reward", reward, (self.num_envs,), np.float32)
        ends = _shaped("terminated", terminated, (self.num_envs,), np.bool_)
        cuts = _shaped("truncated", truncated, (self.num_envs,), np.bool_)
        odds = _shaped("mu", mu, (self.num_envs,), np.float64)
        for name, values in (
            ("observation", observed),
            ("next_observation", arrived),
            ("reward", rewards),
        ):
            if not (is_number := np.isfinite(values)).all():
                raise InputError(f"{name} must be finite, but it holds {values[~is_number][0]}")
        stayed = self.priorities.arrived_at(self.next_observations, observed)
        jumped = self.priorities.in_episode & ~stayed
        if jumped.any():
            raise InputError(
                f"environment {int(jumped.argmax())} was reset in the middle of an episode (its observation is not where the "
                "last step arrived): call cut() after a reset, or say truncated=True with the last step"
            )
        follows_an_end = ~self.priorities.in_episode & (self.priorities.steps > 0)
        resets = stayed & (rewards == 0) & ~ends & ~cuts
        row = self.priorities.steps % len(self.actions)
        self.priorities.add(odds, ends | cuts)
        self.observations[row], self.next_observations[row] = observed, arrived
        self.actions[row], self.rewards[row], self.terminated[row] = taken, rewards, ends
        self._notice_autoreset(resets[follows_an_end])

    def cut(self) -> None:
        """Says that all environments were reset, though their episodes had not ended."""
        self.priorities.cut()

    def update(self, policy: Policy, batch_size: int = 64) -> None:
        """One step of the ratio of `policy`, which maps a batch of observations to probabilities, batch × actions."""
        checked = checked_policy(policy, self.num_actions)
        self.priorities.learn(self.observations, self.actions, checked, batch_size)

    def check(self, policy: Policy) -> EpisodeCheck | None:
        """How the ratio of `policy` compares with the replay's own episodes; None while none has ended."""
        checked = checked_policy(policy, self.num_actions)
        return self.priorities.check(self.observations, self.actions, checked)

    def sample(self, batch_size: int) -> ReplayBatch:
        """Draws transitions in proportion to c to the power `tempering`; uniformly before the first `update`."""
        drawn = self.priorities.draw(self.observations, check_count("batch_size", batch_size))
        return ReplayBatch(
            self.observations[drawn],
            self.actions[drawn],
            self.rewards[drawn],
            self.next_observations[drawn],
            self.terminated[drawn],
        )

    def ratio(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """c of each observation."""
        return self.priorities.learner.ratio(observations)

    def _notice_autoreset(self, resets: NDArray[np.bool_]) -> None:
        """Warns if each of the first episodes starts with a step that looks like a reset in Gymnasium's mode NEXT_STEP.

        Args:
            resets: for each environment that starts an episode, whether the step has no reward and starts where the
                last episode ended.
        """
        before = self._starts_seen
        self._starts_seen += len(resets)
        self._all_reset &= bool(resets.all())
        if before < _TOLD_STARTS <= self._starts_seen and self._all_reset:
            warnings.warn(
                f"each of the first {self._starts_seen} episodes starts where the one before it ended, without a "
                "reward: if your vector environment spends a step on each reset, make it with autoreset_mode=AutoresetMode.SAME_STEP",
                stacklevel=3,
            )


def check_spaces(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> tuple[tuple[int, ...], int]:
    """The shape of observations and the number of actions.

    Raises:
        InputError: the ratio cannot be learned in such spaces.
    """
    if not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
        raise InputError(
            f"the ratio needs the probability of each action, so that actions must be Discrete from 0, but they are {action_space}"
        )
    if not isinstance(observation_space, spaces.Box):
        raise InputError(f"observations must be a Box, but they are {observation_space}")
    return observation_space.shape, int(action_space.n)


def _shaped(name: str, given: ArrayLike, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """The values with a first axis for the environments, which one environment may leave out."""
    values = np.asarray(given)
    if values.shape != shape and (1, *values.shape) != shape:
        raise InputError(f"{name} must have the shape {shape}, but it has {values.shape}")
    return values.reshape(shape).astype(dtype)
