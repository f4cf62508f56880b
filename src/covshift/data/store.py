"""One store of experience: rows by number, observations rebuilt on reading.

Rows are numbered through all segments. A segment is a sealed shard, whose observations stay in the
memory-mapped file, or an open tail in memory. The small columns of all rows are held in memory, about 30
bytes a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import (
    COLUMNS,
    Rows,
    read_batch,
    read_codec,
    read_manifest,
)
from covshift.data.frames import FrameCodec
from covshift.errors import InputError


class Batch(NamedTuple):
    """Transitions as contiguous arrays, one entry a sample.

    Attributes:
        s_tm1: the state before.
        a_tm1: the action taken there.
        mu_tm1: μ(a|s) of that action.
        policy_tm1: which behavior policy took it.
        is_initial_tm1: whether s_tm1 starts an episode.
        r_t: the reward, as the environment gave it.
        terminated_t: whether the episode ended with it.
        truncated_t: whether it was cut off there; s_t is a state like any other then.
        life_lost_t: whether a life was lost on the way.
        s_t: the state after.
    """

    s_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    mu_tm1: NDArray[np.float32]
    policy_tm1: NDArray[np.int16]
    is_initial_tm1: NDArray[np.bool_]
    r_t: NDArray[np.float32]
    terminated_t: NDArray[np.bool_]
    truncated_t: NDArray[np.bool_]
    life_lost_t: NDArray[np.bool_]
    s_t: NDArray[Any]


class StateBatch(NamedTuple):
    """States, each with the state and action that led to it: what the ratio is learned from.

    Attributes:
        s_t: the states.
        is_initial_t: whether a state starts an episode and so has no predecessor.
        s_tm1: the state before; zeros where there is none.
        a_tm1: the action there; 0 where there is none.
        mu_tm1: its probability; 1 where there is none.
    """

    s_t: NDArray[Any]
    is_initial_t: NDArray[np.bool_]
    s_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    mu_tm1: NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class _Blobs:
    """Stored observations of a segment: a buffer and where each row starts and ends in it."""

    buffer: Any
    offsets: NDArray[np.int64]

    def __getitem__(self, row: int) -> Any:
        return self.buffer[self.offsets[row] : self.offsets[row + 1]]

    def table(self) -> NDArray[np.uint8]:
        """Observations of one width, a row of bytes each."""
        rows = len(self.offsets) - 1
        return np.frombuffer(self.buffer, dtype=np.uint8, count=int(self.offsets[-1])).reshape(
            rows, -1
        )


@final
class Store:
    """Rows of a dataset, in the order of its shards.

    Args:
        columns: an array for each column, over all rows.
        blobs: stored observations of each segment.
        starts: the first row of each segment.
        codec: of the observations.
        stack: how many newest observations make a state.
        num_actions: of the environment.
    """

    def __init__(
        self,
        columns: dict[str, NDArray[Any]],
        blobs: list[_Blobs],
        starts: list[int],
        codec: FrameCodec,
        stack: int,
        num_actions: int,
    ) -> None:
        self.columns, self.codec, self.stack, self.num_actions = columns, codec, stack, num_actions
        self._blobs, self._starts = blobs, np.array(starts, dtype=np.int64)
        self._age = _ages(columns["is_initial"])
        self._tables = [] if codec.encoding == "zstd" else [blob.table() for blob in blobs]

    @classmethod
    def open(cls, folder: Path | str) -> Store:
        """The store of a finished dataset."""
        place = Path(folder)
        manifest = read_manifest(place)
        paths = [place / shard["file"] for shard in manifest["shards"]]
        return cls.of_shards(
            paths,
            read_codec(place, manifest),
            manifest["observation"]["stack"],
            manifest["num_actions"],
        )

    @classmethod
    def of_shards(cls, paths: list[Path], codec: FrameCodec, stack: int, num_actions: int) -> Store:
        """The store of some shards; one may stand several times."""
        batches = {path: read_batch(path) for path in dict.fromkeys(paths)}
        listed = [batches[path] for path in paths]
        columns = {
            name: np.concatenate([b.column(name).to_numpy(zero_copy_only=False) for b in listed])
            for name in COLUMNS
        }
        mapped = {path: _map_blobs(batch) for path, batch in batches.items()}
        starts = np.concatenate([[0], np.cumsum([len(batch) for batch in listed])[:-1]])
        return cls(
            columns, [mapped[path] for path in paths], starts.tolist(), codec, stack, num_actions
        )

    def with_tail(self, rows: Rows) -> Store:
        """The same store with rows that are still in memory behind it."""
        columns = {
            name: np.concatenate([self.columns[name], rows.columns[name]]) for name in COLUMNS
        }
        sizes = [len(blob) for blob in rows.observations]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        tail = _Blobs(memoryview(b"".join(rows.observations)), offsets)
        starts = [*self._starts.tolist(), len(self)]
        return Store(
            columns, [*self._blobs, tail], starts, self.codec, self.stack, self.num_actions
        )

    def __len__(self) -> int:
        return len(self.columns["action"])

    @property
    def is_transition(self) -> NDArray[np.bool_]:
        """Which rows have an action."""
        return np.asarray(self.columns["action"] >= 0)

    @property
    def is_state(self) -> NDArray[np.bool_]:
        """Which rows are states that one can be in: all but the terminal ones."""
        return ~self.columns["terminated"]

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of a state: a stack of frames, or an observation."""
        return (self.stack, *self.codec.shape) if self.stack > 1 else self.codec.shape

    def gather(self, ids: NDArray[np.int64]) -> Batch:
        """The transitions that start at these rows.

        Raises:
            InputError: a row has no action, or is not in the store.
        """
        ids = self._checked(ids)
        column = self.columns
        action = column["action"][ids]
        if (action < 0).any():
            raise InputError(
                f"row {int(ids[action < 0][0])} is an episode's last and has no action"
            )
        s_tm1, s_t = self._pairs(ids, ids + 1)
        return Batch(
            s_tm1,
            action.astype(np.int64),
            column["mu"][ids],
            column["policy"][ids],
            column["is_initial"][ids],
            column["reward"][ids + 1],
            column["terminated"][ids + 1],
            column["truncated"][ids + 1],
            column["life_lost"][ids + 1],
            s_t,
        )

    def gather_states(self, ids: NDArray[np.int64], *, restart: bool = False) -> StateBatch:
        """The states at these rows, each with its predecessor.

        Args:
            ids: rows.
            restart: an episode's first state follows the last action of the one that ended before it in
                the same stream, as an ordinary transition.
        """
        ids = self._checked(ids)
        initial = self.columns["is_initial"][ids]
        before = ids - 1
        if restart:
            before, initial = self._across_episodes(ids, before, initial)
        known = np.where(initial, ids, before)
        s_tm1, s_t = self._pairs(known, ids)
        s_tm1[initial] = 0
        return StateBatch(
            s_t,
            initial,
            s_tm1,
            np.where(initial, 0, self.columns["action"][known]).astype(np.int64),
            np.where(initial, np.float32(1), self.columns["mu"][known]),
        )

    def states(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The states at these rows."""
        out = np.zeros((len(ids), *self.state_shape), dtype=self.codec.dtype)
        self._decode(self._checked(ids), out)
        return out

    def observation(self, row: int) -> NDArray[Any]:
        """The observation of one row alone, flat."""
        return self.codec.decode(self._blobs_at(np.array([row]))[0])

    def segment_sizes(self) -> list[int]:
        """How many rows each segment has."""
        return [int(size) for size in np.diff([*self._starts.tolist(), len(self)])]

    def check_valid(self) -> None:
        """Raises AssertionError unless the rows form whole episodes, one after the other."""
        column = self.columns
        last = column["action"] < 0
        assert last[-1]
        assert column["is_initial"][0]
        np.testing.assert_array_equal(column["is_initial"][1:], last[:-1])
        ended = column["terminated"] | column["truncated"]
        np.testing.assert_array_equal(ended, last)
        assert not (column["terminated"] & column["truncated"]).any()
        np.testing.assert_array_equal(np.isnan(column["mu"]), last)
        assert ((column["mu"][~last] > 0) & (column["mu"][~last] <= 1)).all()
        assert (column["action"] < self.num_actions).all()
        for name in ("episode", "stream"):
            same = column[name][1:] == column[name][:-1]
            assert (same | column["is_initial"][1:]).all()
        assert (np.diff(column["episode"]) >= 0).all()
        assert (column["reward"][column["is_initial"]] == 0).all()
        assert np.isfinite(column["reward"]).all()

    def _across_episodes(
        self, ids: NDArray[np.int64], before: NDArray[np.int64], initial: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        column = self.columns
        last = np.maximum(ids - 1, 0)
        follows = initial & (ids >= 2) & column["terminated"][last]
        follows &= column["stream"][last] == column["stream"][ids]
        follows &= column["episode"][last] + 1 == column["episode"][ids]
        return np.where(follows, ids - 2, before), initial & ~follows

    def _pairs(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """States at two rows each, where the second mostly follows the first."""
        shape = (len(first), *self.state_shape)
        pair = np.zeros(shape, self.codec.dtype), np.zeros(shape, self.codec.dtype)
        if self.stack == 1:
            self._decode(first, pair[0])
            self._decode(second, pair[1])
            return pair
        size = int(np.prod(self.codec.shape))
        older, newer = (states.reshape(len(first), self.stack, size) for states in pair)
        follows = (second == first + 1) & (self._age[second] > 0)
        self._decode_stacks(second, newer)
        # The older stack is the newer one moved by a frame, but for its first.
        older[follows, 1:] = newer[follows, :-1]
        oldest = follows & (self._age[first] >= self.stack - 1)
        for k, blob in zip(
            np.flatnonzero(oldest), self._blobs_at(first[oldest] - self.stack + 1), strict=True
        ):
            older[k, 0] = self.codec.decode(blob)
        apart = np.flatnonzero(~follows)
        if len(apart):
            states = np.zeros((len(apart), *older.shape[1:]), older.dtype)
            self._decode_stacks(first[apart], states)
            older[apart] = states
        return pair

    def _decode(self, ids: NDArray[np.int64], out: NDArray[Any]) -> None:
        if self.stack == 1 and self.codec.encoding != "zstd":
            out[...] = self.codec.decode_plain(self._stored(ids))
        else:
            size = int(np.prod(self.codec.shape))
            self._decode_stacks(ids, out.reshape(len(ids), self.stack, size))

    def _decode_stacks(self, ids: NDArray[np.int64], out: NDArray[Any]) -> None:
        """The newest frames of each row's episode, oldest first; `out` is zero where there is none."""
        if not len(ids):
            return
        decode = self.codec.decode
        depth = np.minimum(self._age[ids], self.stack - 1).astype(np.int64) + 1
        rows = np.concatenate(
            [np.arange(row - n + 1, row + 1) for row, n in zip(ids, depth, strict=True)]
        )
        blobs = iter(self._blobs_at(rows))
        for k, count in enumerate(depth.tolist()):
            state = out[k]
            for slot in range(self.stack - count, self.stack):
                state[slot] = decode(next(blobs))

    def _stored(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        segments = np.searchsorted(self._starts, ids, side="right") - 1
        stored = np.empty((len(ids), self._tables[0].shape[1]), dtype=np.uint8)
        for segment in np.unique(segments):
            here = segments == segment
            stored[here] = self._tables[segment][ids[here] - self._starts[segment]]
        return stored

    def _blobs_at(self, rows: NDArray[np.int64]) -> list[Any]:
        """The stored bytes of each row."""
        segments = np.searchsorted(self._starts, rows, side="right") - 1
        within = rows - self._starts[segments]
        return [
            self._blobs[segment][row]
            for segment, row in zip(segments.tolist(), within.tolist(), strict=True)
        ]

    def _checked(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.asarray(ids, dtype=np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            bad = rows.min() if rows.min() < 0 else rows.max()
            raise InputError(f"row {bad} is not among the store's {len(self)} rows")
        return rows


def _map_blobs(batch: Any) -> _Blobs:
    column = batch.column("observation")
    buffers = column.buffers()
    if len(buffers) == 3:
        offsets = np.frombuffer(buffers[1], dtype=np.int64)[: len(column) + 1]
        return _Blobs(memoryview(buffers[2]), offsets)
    width = column.type.byte_width
    return _Blobs(memoryview(buffers[1]), np.arange(len(column) + 1, dtype=np.int64) * width)


def _ages(is_initial: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """How many rows of its episode stand before each row, at most 255."""
    rows = np.arange(len(is_initial))
    start = np.maximum.accumulate(np.where(is_initial, rows, 0))
    return np.minimum(rows - start, 255).astype(np.uint8)
