"""Running behavior policies, and the rows that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import COLUMNS, Rows
from covshift.data.frames import FrameCodec
from covshift.data.policies import Policy
from covshift.envs import Streams

_POLICY_DRAWS = 512
"""Uniform numbers that a stream draws at once."""


@final
@dataclass(frozen=True, eq=False)
class Acted:
    """A step of all streams with what was done and what it led to."""

    observation: NDArray[Any]
    action: NDArray[np.int64]
    mu: NDArray[np.float64]
    policy: NDArray[np.int64]
    arrived: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    life_lost: NDArray[np.bool_]


@final
class Runner:
    """Runs the policies; each stream draws from a generator of its own."""

    def __init__(
        self,
        streams: Streams,
        policies: list[Policy],
        generators: list[np.random.Generator],
        stack: int,
    ) -> None:
        self._streams, self._policies, self._generators = streams, policies, generators
        self._depth = stack
        self._draws = np.empty((0, len(generators)))
        self._law = _Law(np.ones((len(generators), 1)))
        self._needs = any(policy.needs_observations for policy in policies)

    def steps(self) -> Iterator[Acted]:
        """Step after step, without end.

        A step is handed on while the emulators are busy with the next one.
        """
        seeds = np.array([rng.integers(2**31 - 1) for rng in self._generators])
        everywhere = np.ones(len(seeds), dtype=bool)
        current = self._streams.reset(seeds)
        chosen = self._choose(np.zeros(len(seeds), dtype=np.int64), everywhere)
        stack = self._restack(None, current, everywhere)
        action, mu = self._act(stack, chosen, 0)
        self._streams.send(action)
        for index in count(1):
            step = self._streams.receive()
            acted = Acted(
                current,
                action,
                mu,
                chosen,
                step.arrived,
                step.reward,
                step.terminated,
                step.truncated,
                step.life_lost,
            )
            current, ended = step.current, step.terminated | step.truncated
            chosen = self._choose(chosen, ended)
            stack = self._restack(stack, current, ended)
            action, mu = self._act(stack, chosen, index)
            self._streams.send(action)
            yield acted

    def _act(
        self, stack: NDArray[Any], chosen: NDArray[np.int64], index: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if index % _POLICY_DRAWS == 0:
            blocks = [rng.random(_POLICY_DRAWS) for rng in self._generators]
            self._draws = np.stack(blocks, axis=1)
        if self._needs or index == 0 or len(self._policies) > 1:
            self._law = _Law(self._probabilities(stack, chosen))
        return self._law.draw(self._draws[index % _POLICY_DRAWS])

    def _choose(self, chosen: NDArray[np.int64], anew: NDArray[np.bool_]) -> NDArray[np.int64]:
        if len(self._policies) == 1:
            return chosen
        chosen = chosen.copy()
        for k in np.flatnonzero(anew):
            chosen[k] = self._generators[k].integers(len(self._policies))
        return chosen

    def _probabilities(self, stack: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        if len(self._policies) == 1:
            return self._policies[0].probabilities(stack)
        every = np.stack([policy.probabilities(stack) for policy in self._policies])
        return np.asarray(every[chosen, np.arange(len(chosen))])

    def _restack(
        self, stack: NDArray[Any] | None, current: NDArray[Any], anew: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """What policies see: for games the newest frames, oldest first, zeros before the first."""
        if self._depth == 1 or not self._needs:
            return current
        if stack is None:
            stack = np.zeros((len(current), self._depth, *current.shape[1:]), dtype=current.dtype)
        stack = np.concatenate([stack[:, 1:], current[:, None]], axis=1)
        stack[anew, :-1] = 0
        return stack


class _Law:
    """Actions by inversion, a row of probabilities for each stream."""

    def __init__(self, probabilities: NDArray[np.float64]) -> None:
        self._probabilities = probabilities
        self._cumulative = np.cumsum(probabilities, axis=1)
        self._last = probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(axis=1)
        self._rows = np.arange(len(probabilities))

    def draw(self, u: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """An action for each u, never one of probability 0, and its probability."""
        action = np.minimum((self._cumulative <= u[:, None]).sum(axis=1), self._last)
        return action, self._probabilities[self._rows, action]


@final
class StreamWriter:
    """The rows of one stream, as they come."""

    def __init__(self, codec: FrameCodec, stream: int) -> None:
        self._codec, self._stream = codec, stream
        self._rows: list[tuple[Any, ...]] = []
        self._blobs: list[bytes] = []
        self._arrival: tuple[Any, ...] | None = None
        self.transitions = 0
        self.episodes = 0

    @property
    def at_start(self) -> bool:
        """Whether the next row starts an episode."""
        return self._arrival is None

    def add(self, step: Acted, k: int) -> None:
        """Adds what stream `k` did and saw in a step."""
        if self._arrival is None:
            self._arrival = (0.0, False, False, False, True)
            self._blobs.append(self._codec.encode(step.observation[k]))
            self.episodes += 1
        episode = self.episodes - 1
        self._rows.append((step.action[k], step.mu[k], step.policy[k], *self._arrival, episode))
        self._arrival = (
            step.reward[k],
            step.terminated[k],
            step.truncated[k],
            step.life_lost[k],
            False,
        )
        self._blobs.append(self._codec.encode(step.arrived[k]))
        self.transitions += 1
        if step.terminated[k] or step.truncated[k]:
            self._rows.append((-1, np.nan, step.policy[k], *self._arrival, episode))
            self._arrival = None

    def rows(self, first_episode: int) -> Rows:
        """All rows of whole episodes, which are numbered from `first_episode`."""
        names = [name for name in COLUMNS if name != "stream"]
        by_column = zip(*self._rows, strict=True)
        columns = {
            name: np.array(values, dtype=COLUMNS[name].to_pandas_dtype())
            for name, values in zip(names, by_column, strict=True)
        }
        columns["episode"] += first_episode
        columns["stream"] = np.full(len(self._rows), self._stream, dtype=np.int16)
        return Rows(columns, self._blobs)
