"""Several independent streams of one environment, stepped together.

A stream whose episode ends starts the next one in the same step, from its own generator, so that what a stream sees
depends only on its seed and its actions.
"""

from __future__ import annotations

import difflib
import importlib
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from covshift.config.environment import EnvOptions
from covshift.errors import InputError
from covshift.extras import require

CAPS = {"ALE": 27_000, "MinAtar": 5_000}
"""The most agent steps of an episode, by namespace."""


class Outcome(NamedTuple):
    """What a step of all streams led to; each array has an entry per stream.

    Attributes:
        arrived: the observation that the action led to; where the episode ended, its last.
        reward: the reward as the environment gives it, never clipped.
        terminated: whether the episode ended.
        truncated: whether the episode was cut off, so that the arrived state is a state like any other.
        life_lost: whether a life was lost, which does not end the episode.
        current: the observation to act on next: `arrived`, or the first of the next episode.
    """

    arrived: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    life_lost: NDArray[np.bool_]
    current: NDArray[Any]

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether the episode is over: terminated or truncated."""
        return self.terminated | self.truncated


class Streams(Protocol):
    """Streams of one environment.

    Attributes:
        num_actions: number of actions.
        observation_shape: shape of an observation; for Atari games of one frame.
        observation_dtype: type of its values.
        frame_stack: how many of the newest observations make a state.
    """

    num_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    frame_stack: int

    def reset(self, seeds: NDArray[np.int64]) -> NDArray[Any]:
        """Restarts every stream from its seed, whatever came before, and returns the first observations."""

    def send(self, actions: NDArray[np.int64]) -> None:
        """Starts one step of every stream; emulators run while the caller does other things."""

    def receive(self) -> Outcome:
        """Waits for the step that was started last."""

    def close(self) -> None:
        """Frees the environment."""


def step_streams(streams: Streams, actions: NDArray[np.int64]) -> Outcome:
    """Steps every stream, and waits for the outcome."""
    streams.send(actions)
    return streams.receive()


def make_streams(
    env_id: str, options: EnvOptions, num_streams: int, num_threads: int = 0
) -> Streams:
    """Makes the streams of an environment.

    Args:
        env_id: `ALE/<Game>-v5`, `MinAtar/<Game>-v1`, `covshift/<Name>-v0` or any other Gymnasium id with
            discrete actions.
        options: protocol of the environment.
        num_streams: number of streams.
        num_threads: threads of ALE's vector environment; 0 takes one for each core.

    Raises:
        InputError: there is no such environment, or it has other actions or observations than are supported.
    """
    namespace = env_id.split("/")[0]
    _register(namespace)
    if env_id not in gymnasium.registry:
        near = difflib.get_close_matches(env_id, gymnasium.registry, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"there is no environment '{env_id}'{hint}")
    if namespace == "ALE":
        return AleStreams(env_id, options, num_streams, num_threads)
    return GymStreams(env_id, options, num_streams)


@final
class AleStreams:
    """An Atari game through ALE's own vector environment."""

    def __init__(
        self, env_id: str, options: EnvOptions, num_streams: int, num_threads: int = 0
    ) -> None:
        vector_env = importlib.import_module("ale_py.vector_env")
        cap = CAPS["ALE"] if options.episode_cap is None else options.episode_cap
        game = gymnasium.spec(env_id).kwargs["game"]
        self._env = vector_env.AtariVectorEnv(
            game,
            num_streams,
            num_threads=num_threads,
            max_num_frames_per_episode=cap * options.frame_skip,
            repeat_action_probability=options.sticky_actions,
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
            img_height=options.frame_size,
            img_width=options.frame_size,
            stack_num=1,
            frameskip=options.frame_skip,
            noop_max=0,
            use_fire_reset=False,
            reward_clipping=False,
        )
        self.num_actions = int(self._env.single_action_space.n)
        self.observation_shape: tuple[int, ...] = (options.frame_size, options.frame_size)
        self.observation_dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.frame_stack = options.frame_stack
        self._lives = np.zeros(num_streams, dtype=np.int32)

    def reset(self, seeds: NDArray[np.int64]) -> NDArray[Any]:
        """Restarts every emulator from its seed."""
        observation, info = self._env.reset(seed=seeds)
        self._lives = info["lives"].copy()
        return np.asarray(observation[:, 0])

    def send(self, actions: NDArray[np.int64]) -> None:
        """Hands the actions to the emulators' threads."""
        self._env.send(actions)

    def receive(self) -> Outcome:
        """Waits for all emulators."""
        observation, reward, terminated, truncated, info = self._env.recv()
        current = observation[:, 0]
        ended = terminated | truncated
        arrived = current
        if ended.any():
            arrived = np.where(ended[:, None, None], info["final_obs"][:, 0], current)
        life_lost = ~ended & (info["lives"] < self._lives)
        self._lives = info["lives"]
        return Outcome(
            arrived, reward.astype(np.float64), terminated, truncated, life_lost, current
        )

    def close(self) -> None:
        """Stops the emulators."""
        self._env.close()


@final
class GymStreams:
    """Any Gymnasium environment with discrete actions, stepped in a loop.

    Gymnasium's SyncVectorEnv gives the same streams, but takes up to 1.4 times as long per step.
    """

    def __init__(self, env_id: str, options: EnvOptions, num_streams: int) -> None:
        cap = options.episode_cap or CAPS.get(env_id.split("/")[0])
        self._make = partial(gymnasium.make, env_id, max_episode_steps=cap)
        try:
            self._envs = [self._make() for _ in range(num_streams)]
        except gymnasium.error.Error as error:
            raise InputError(f"{env_id} cannot be made: {error}") from error
        self._used = False
        actions, observations = self._envs[0].action_space, self._envs[0].observation_space
        if not isinstance(actions, spaces.Discrete) or actions.start != 0:
            raise InputError(f"{env_id} has the actions {actions}, but Discrete(n) is needed")
        if observations.shape is None or observations.dtype is None:
            raise InputError(f"{env_id} has the observations {observations}, but arrays are needed")
        self.num_actions = int(actions.n)
        self.observation_shape: tuple[int, ...] = tuple(observations.shape)
        self.observation_dtype: np.dtype[Any] = observations.dtype
        self.frame_stack = 1
        self._actions = np.zeros(num_streams, dtype=np.int64)

    def reset(self, seeds: NDArray[np.int64]) -> NDArray[Any]:
        """Restarts every stream from its seed, in new environments, since an old one may carry something over."""
        if self._used:
            self.close()
            self._envs = [self._make() for _ in self._envs]
        self._used = True
        return self._stack(
            [env.reset(seed=int(seed))[0] for env, seed in zip(self._envs, seeds, strict=True)]
        )

    def send(self, actions: NDArray[np.int64]) -> None:
        """Keeps the actions until `receive`, which takes the step."""
        self._actions = actions

    def receive(self) -> Outcome:
        """Steps every environment."""
        actions = self._actions
        results = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        arrived, reward, terminated, truncated, _ = zip(*results, strict=True)
        current = [
            env.reset()[0] if done or cut else observation
            for env, observation, done, cut in zip(
                self._envs, arrived, terminated, truncated, strict=True
            )
        ]
        ended = np.array(terminated, dtype=bool)
        return Outcome(
            self._stack(arrived),
            np.array(reward, dtype=np.float64),
            ended,
            np.array(truncated, dtype=bool) & ~ended,
            np.zeros(len(results), dtype=bool),
            self._stack(current),
        )

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def _stack(self, observations: Any) -> NDArray[Any]:
        return np.asarray(np.stack(observations).astype(self.observation_dtype, copy=False))


def _register(namespace: str) -> None:
    """Registers the games of an extra with Gymnasium."""
    if namespace not in ("ALE", "MinAtar"):
        return
    require("games")
    if namespace == "ALE":
        gymnasium.register_envs(importlib.import_module("ale_py"))
    elif not any(name.startswith("MinAtar/") for name in gymnasium.registry):
        cast(Any, importlib.import_module("minatar.gym")).register_envs()
