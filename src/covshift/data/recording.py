"""Running behavior policies, and the rows that come of it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import COLUMNS, Rows, stack_rows
from covshift.data.frames import FrameCodec
from covshift.data.policies import Policy
from covshift.envs import Streams

_POLICY_DRAWS = 512
"""Uniform numbers that a stream draws at once."""

_BLOCK = 64
"""Steps that are recorded at once."""

_STEP_COLUMNS = ("action", "mu", "policy", "reward", "terminated", "truncated", "life_lost")
"""Columns that a step fills."""


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

    def steps(self) -> Generator[Acted]:
        """Step after step, without end.

        A step is handed on while the emulators are busy with the next one; closing waits for that, so that the
        streams can start anew.
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
            try:
                yield acted
            except GeneratorExit:
                self._streams.receive()
                raise

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
class Recorder:
    """What K streams did and saw, until each has its quota of transitions and has ended its episode.

    Steps are kept as they are and turned into rows by blocks, which is cheaper than a row at a time.
    """

    def __init__(self, codec: FrameCodec, num_streams: int, quota: int) -> None:
        self._codec, self._quota = codec, quota
        self._block: list[Acted] = []
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _STEP_COLUMNS}
        self._blobs: list[list[bytes]] = [[] for _ in range(num_streams)]
        self._lengths = np.zeros(num_streams, dtype=np.int64)
        self._running = np.ones(num_streams, dtype=bool)
        self._fresh = np.ones(num_streams, dtype=bool)

    def add(self, step: Acted) -> int:
        """Takes a step, and says of how many streams it is part of the record."""
        count = int(np.count_nonzero(self._running))
        if count:
            self._block.append(step)
            self._lengths += self._running
            if int(self._lengths.max()) >= self._quota:
                self._running &= ~(step.terminated | step.truncated)
        if len(self._block) == _BLOCK:
            self._flush()
        return count

    def rows(self, first_episode: int) -> Rows:
        """All rows, stream after stream; episodes are numbered from `first_episode`."""
        self._flush()
        table = {name: np.concatenate(blocks) for name, blocks in self._columns.items()}
        parts = []
        for k, length in enumerate(self._lengths.tolist()):
            steps = {name: values[:length, k] for name, values in table.items()}
            part = _stream_columns(steps, k, first_episode)
            first_episode += int(part["is_initial"].sum())
            parts.append(Rows(part, self._blobs[k]))
        return stack_rows(parts)

    def _flush(self) -> None:
        """Turns the kept steps into columns, and their frames into stored bytes."""
        block, self._block = self._block, []
        if not block:
            return
        for name, blocks in self._columns.items():
            kind = COLUMNS[name].to_pandas_dtype()
            blocks.append(np.array([getattr(step, name) for step in block], dtype=kind))
        ended = self._columns["terminated"][-1] | self._columns["truncated"][-1]
        before = sum(map(len, self._columns["action"])) - len(block)
        encode = self._codec.encode
        for k, blobs in enumerate(self._blobs):
            fresh = bool(self._fresh[k])
            recorded = block[: max(0, int(self._lengths[k]) - before)]
            for step, end in zip(recorded, ended[:, k], strict=False):
                if fresh:
                    blobs.append(encode(step.observation[k]))
                blobs.append(encode(step.arrived[k]))
                fresh = bool(end)
            self._fresh[k] = fresh


def _stream_columns(
    steps: dict[str, NDArray[Any]], stream: int, first_episode: int
) -> dict[str, NDArray[Any]]:
    """The rows of one stream's steps: a row for the state before each, and one for each episode's last.

    With `at` the row in which step t was taken, what it led to stands in the row behind it.
    """
    ended = steps["terminated"] | steps["truncated"]
    initial = np.concatenate([[True], ended[:-1]])
    episode = np.cumsum(initial) - 1
    at = np.arange(len(ended)) + episode
    size = len(ended) + int(ended.sum())
    columns = {name: np.zeros(size, dtype=kind.to_pandas_dtype()) for name, kind in COLUMNS.items()}
    columns["action"][:], columns["mu"][:] = -1, np.nan
    for name in ("action", "mu"):
        columns[name][at] = steps[name]
    for name in ("reward", "terminated", "truncated", "life_lost"):
        columns[name][at + 1] = steps[name]
    for rows in (at, at + 1):
        columns["policy"][rows] = steps["policy"]
        columns["episode"][rows] = first_episode + episode
    columns["is_initial"][at] = initial
    columns["stream"][:] = stream
    return columns
