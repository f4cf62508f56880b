"""Turning the steps of streams into rows."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.codec import FrameCodec
from covshift.data.format import COLUMNS, Rows, stack_rows
from covshift.data.runner import Step

_BLOCK = 64
"""Steps that are turned into rows at once, which is cheaper than one at a time."""

_DONE, _ARRIVED = ("action", "mu", "policy"), ("reward", "terminated", "truncated", "life_lost")
"""Columns of what was done in a state, and of what it led to."""


@final
class Recorder:
    """Records every stream until it has its quota of transitions and its episode has ended.

    Args:
        codec: codec of the observations.
        num_streams: number of streams.
        quota: transitions after which a stream stops at the end of its episode.
        limit: how many transitions are wanted, in the order of the rows; all by default.
    """

    def __init__(
        self, codec: FrameCodec, num_streams: int, quota: int, limit: int | None = None
    ) -> None:
        self._codec, self._quota, self._limit = codec, quota, limit
        self._block: list[Step] = []
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_DONE, *_ARRIVED)}
        self._blobs: list[list[bytes]] = [[] for _ in range(num_streams)]
        self._lengths = np.zeros(num_streams, dtype=np.int64)
        self._running = np.ones(num_streams, dtype=bool)
        self._starts = np.ones(num_streams, dtype=bool)

    @property
    def is_complete(self) -> bool:
        """Whether nothing more can become part of the rows that are wanted.

        Rows are ordered by stream, so that those of a stream have their place once all streams before it have ended.
        """
        if not self._running.any():
            return True
        if self._limit is None:
            return False
        placed = int(self._lengths[: int(self._running.argmax()) + 1].sum())
        return placed >= self._limit

    def add(self, step: Step) -> int:
        """Records a step, and returns how many streams it was recorded of."""
        count = int(np.count_nonzero(self._running))
        self._block.append(step)
        self._lengths += self._running
        if int(self._lengths.max()) >= self._quota:
            self._running &= ~step.outcome.ended
        if len(self._block) == _BLOCK:
            self._flush()
        return count

    def rows(self, first_episode: int) -> Rows:
        """All rows that are wanted, one stream after the other; episodes are numbered from `first_episode`.

        An episode that is cut at the limit is marked as truncated.
        """
        self._flush()
        table = {name: np.concatenate(blocks) for name, blocks in self._columns.items()}
        parts = []
        for k, length in enumerate(self._lengths.tolist()):
            steps = {name: values[:length, k] for name, values in table.items()}
            part = _stream_columns(steps, k, first_episode)
            first_episode += int(part["is_initial"].sum())
            parts.append(Rows(part, self._blobs[k]))
        rows = stack_rows(parts)
        return rows if self._limit is None else rows.cut(min(self._limit, rows.num_transitions))

    def _flush(self) -> None:
        """Turns the steps of the block into columns, and their observations into stored bytes."""
        block, self._block = self._block, []
        if not block:
            return
        before = sum(map(len, self._columns["action"]))
        for name, blocks in self._columns.items():
            values = [getattr(s if name in _DONE else s.outcome, name) for s in block]
            blocks.append(np.array(values, dtype=COLUMNS[name].to_pandas_dtype()))
        ended = self._columns["terminated"][-1] | self._columns["truncated"][-1]
        encode = self._codec.encode
        for k, blobs in enumerate(self._blobs):
            starts = bool(self._starts[k])
            recorded = block[: max(0, int(self._lengths[k]) - before)]
            for step, end in zip(recorded, ended[:, k], strict=False):
                if starts:
                    blobs.append(encode(step.observation[k]))
                blobs.append(encode(step.outcome.arrived[k]))
                starts = bool(end)
            self._starts[k] = starts


def _stream_columns(
    steps: dict[str, NDArray[Any]], stream: int, first_episode: int
) -> dict[str, NDArray[Any]]:
    """The columns of one stream's rows: a row for the state before each step, and one for each episode's last.

    An episode that is still running ends with the newest state. Step t was taken in row `rows[t]`; what it led to is in the row after it.
    """
    ended = steps["terminated"] | steps["truncated"]
    initial = np.concatenate([[True], ended[:-1]])
    episode = np.cumsum(initial) - 1
    rows = np.arange(len(ended)) + episode
    size = len(ended) + int(initial.sum())
    columns = {name: np.zeros(size, dtype=kind.to_pandas_dtype()) for name, kind in COLUMNS.items()}
    columns["action"][:], columns["mu"][:] = -1, np.nan
    for name in ("action", "mu"):
        columns[name][rows] = steps[name]
    for name in _ARRIVED:
        columns[name][rows + 1] = steps[name]
    for both in (rows, rows + 1):
        columns["policy"][both] = steps["policy"]
        columns["episode"][both] = first_episode + episode
    columns["is_initial"][rows] = initial
    columns["stream"][:] = stream
    return columns
