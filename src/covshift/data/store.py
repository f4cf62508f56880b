"""One store of experience: rows by number, observations rebuilt on reading.

Rows are numbered through all segments. A segment is a sealed shard, whose observations stay in the
memory-mapped file, or rows in memory: the open tail, which grows. The small columns of all rows are held in
memory, about 30 bytes a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import (
    COLUMNS,
    Rows,
    read_codec,
    read_manifest,
)
from covshift.data.frames import FrameCodec
from covshift.data.segments import GrowingArray, Segment, Shard, Tail
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
class Store:
    """Rows of a dataset, in the order in which they were appended.

    A row is a state, and becomes part of the store once it is known what followed it: the newest row of an
    episode that is still running is held back until the next one arrives. So a row of the store never
    changes, and every row but an episode's last is a transition. `columns`, `is_transition` and `is_state`
    are views of the rows so far; appending costs the same a row however many there are.

    Args:
        codec: of the observations.
        stack: how many newest observations make a state.
        num_actions: of the environment.

    Attributes:
        columns: an array for each column, over all rows.
        is_transition: which rows have an action.
        is_state: which rows are states that one can be in: all but the terminal ones.
    """

    columns: dict[str, NDArray[Any]]
    is_transition: NDArray[np.bool_]
    is_state: NDArray[np.bool_]

    def __init__(self, codec: FrameCodec, stack: int, num_actions: int) -> None:
        self.codec, self.stack, self.num_actions = codec, stack, num_actions
        self._held = {name: GrowingArray(kind.to_pandas_dtype()) for name, kind in COLUMNS.items()}
        self._has_action, self._can_be_in = GrowingArray(np.bool_), GrowingArray(np.bool_)
        self._ages = GrowingArray(np.uint8)
        self._segments: list[Segment] = []
        self._starts = np.empty(0, dtype=np.int64)
        self._show()

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
        """The store of some shards, or of none so far; one may stand several times."""
        store = cls(codec, stack, num_actions)
        shards = {path: Shard(path) for path in dict.fromkeys(paths)}
        size = sum(len(shards[path]) for path in paths)
        for array in store._arrays():
            array.reserve(size)
        for path in paths:
            store._append_shard(path, shards[path])
        return store

    def append_shard(self, path: Path) -> None:
        """Adds the rows of a sealed shard; its observations stay in the memory-mapped file.

        Raises:
            InputError: the shard does not hold whole episodes, or one is still running here.
        """
        self._append_shard(path, Shard(path))

    def append(self, rows: Rows) -> None:
        """Adds rows that are in memory: whole episodes, or a part of one that goes on with the next call.

        A row is given once its action is known; an episode's last has none.

        Raises:
            InputError: the rows do not go on where the last ones ended.
        """
        if not len(rows):
            return
        self._check_follows("the rows", rows.columns)
        if not self._segments or not isinstance(tail := self._segments[-1], Tail):
            tail = Tail()
            self._begin(tail)
        tail.extend(rows.observations)
        self._extend(rows.columns)

    def __len__(self) -> int:
        return len(self.is_state)

    @property
    def is_running(self) -> bool:
        """Whether an episode is not over yet, and its newest row held back."""
        action = self._held["action"].rows
        return bool(len(action) and action[-1] >= 0)

    @property
    def known(self) -> dict[str, NDArray[Any]]:
        """The columns over all rows, with the one that is held back: what the newest action led to."""
        return {name: array.rows for name, array in self._held.items()}

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
        column = self.known
        action = column["action"][ids]
        if (action < 0).any():
            raise InputError(
                f"row {int(ids[action < 0][0])} is an episode's last and has no action"
            )
        s_tm1, s_t = self.pairs(ids, ids + 1)
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
        before, initial = self.predecessors(ids, restart=restart)
        known = np.where(initial, ids, before)
        s_tm1, s_t = self.pairs(known, ids)
        s_tm1[initial] = 0
        return StateBatch(
            s_t,
            initial,
            s_tm1,
            np.where(initial, 0, self.columns["action"][known]).astype(np.int64),
            np.where(initial, np.float32(1), self.columns["mu"][known]),
        )

    def predecessors(
        self, ids: NDArray[np.int64], *, restart: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The row from which each row was arrived at, and which rows have none.

        Args:
            ids: rows.
            restart: as in `gather_states`.
        """
        column = self.columns
        initial = column["is_initial"][ids]
        before = ids - 1
        if restart:
            last = np.maximum(before, 0)
            follows = initial & (ids >= 2) & column["terminated"][last]
            follows &= column["stream"][last] == column["stream"][ids]
            follows &= column["episode"][last] + 1 == column["episode"][ids]
            before, initial = np.where(follows, ids - 2, before), initial & ~follows
        return before, initial

    def states(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The states at these rows."""
        out = np.zeros((len(ids), *self.state_shape), dtype=self.codec.dtype)
        self._decode(self._checked(ids), out)
        return out

    def observation(self, row: int) -> NDArray[Any]:
        """The observation of one row alone, flat."""
        return self.codec.decode(self._blobs_at(np.array([row]))[0])

    def initial_share(self) -> float:
        """The share of states that start an episode."""
        return float((self.columns["is_initial"] & self.is_state).sum() / self.is_state.sum())

    def segment_sizes(self) -> list[int]:
        """How many rows each segment has."""
        return [int(size) for size in np.diff([*self._starts.tolist(), len(self)])]

    def check_valid(self) -> None:
        """Raises AssertionError unless the rows form episodes, one after the other; the last may be running."""
        column = self.known
        last, initial = column["action"] < 0, column["is_initial"]
        assert len(self) == len(last) - self.is_running
        assert initial[:1].all()
        np.testing.assert_array_equal(initial[1:], last[:-1])
        ended = column["terminated"] | column["truncated"]
        np.testing.assert_array_equal(ended, last)
        assert not (column["terminated"] & column["truncated"]).any()
        np.testing.assert_array_equal(np.isnan(column["mu"]), last)
        assert ((column["mu"][~last] > 0) & (column["mu"][~last] <= 1)).all()
        assert (column["action"] < self.num_actions).all()
        for name in ("episode", "stream"):
            same = column[name][1:] == column[name][:-1]
            assert (same | initial[1:]).all()
        assert (np.diff(column["episode"]) >= 0).all()
        assert (column["reward"][initial] == 0).all()
        assert np.isfinite(column["reward"]).all()
        np.testing.assert_array_equal(self._has_action.rows, ~last)
        np.testing.assert_array_equal(self._can_be_in.rows, ~column["terminated"])
        np.testing.assert_array_equal(self._ages.rows, _ages(initial, 0))

    def _append_shard(self, path: Path, shard: Shard) -> None:
        columns = shard.columns()
        self._check_follows(str(path), columns)
        if columns["action"][-1] >= 0:
            raise InputError(f"{path} ends within an episode, but a shard holds whole ones")
        self._begin(shard)
        self._extend(columns)

    def _check_follows(self, name: str, columns: dict[str, NDArray[Any]]) -> None:
        if self.is_running and columns["is_initial"][0]:
            raise InputError(
                f"{name} start an episode, but episode {self._held['episode'].rows[-1]} is still "
                "running: append its rows to the end first"
            )
        if not (self.is_running or columns["is_initial"][0]):
            raise InputError(f"{name} start within an episode whose first rows are not here")

    def _begin(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._starts = np.append(self._starts, len(self._ages))

    def _extend(self, columns: dict[str, NDArray[Any]]) -> None:
        before = int(self._ages.rows[-1]) + 1 if self.is_running else 0
        self._ages.extend(_ages(columns["is_initial"], before))
        self._has_action.extend(columns["action"] >= 0)
        self._can_be_in.extend(~columns["terminated"])
        for name, array in self._held.items():
            array.extend(columns[name])
        self._show()

    def _show(self) -> None:
        size = len(self._ages) - self.is_running
        self.columns = {name: array.rows[:size] for name, array in self._held.items()}
        self.is_transition = self._has_action.rows[:size]
        self.is_state = self._can_be_in.rows[:size]

    def _arrays(self) -> list[GrowingArray]:
        return [*self._held.values(), self._has_action, self._can_be_in, self._ages]

    def pairs(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """States at two rows each, where the second mostly follows the first and may be the one held back."""
        shape = (len(first), *self.state_shape)
        pair = np.zeros(shape, self.codec.dtype), np.zeros(shape, self.codec.dtype)
        if self.stack == 1:
            self._decode(first, pair[0])
            self._decode(second, pair[1])
            return pair
        size = int(np.prod(self.codec.shape))
        older, newer = (states.reshape(len(first), self.stack, size) for states in pair)
        ages = self._ages.rows
        follows = (second == first + 1) & (ages[second] > 0)
        self._decode_stacks(second, newer)
        # The older stack is the newer one moved by a frame, but for its first.
        older[follows, 1:] = newer[follows, :-1]
        oldest = follows & (ages[first] >= self.stack - 1)
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
        depth = np.minimum(self._ages.rows[ids], self.stack - 1).astype(np.int64) + 1
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
        stored = np.empty((len(ids), self.codec.stored_bytes), dtype=np.uint8)
        for segment in np.unique(segments):
            here = segments == segment
            stored[here] = self._segments[segment].table()[ids[here] - self._starts[segment]]
        return stored

    def _blobs_at(self, rows: NDArray[np.int64]) -> list[Any]:
        """The stored bytes of each row."""
        segments = np.searchsorted(self._starts, rows, side="right") - 1
        within = rows - self._starts[segments]
        return [
            self._segments[segment].blob(row)
            for segment, row in zip(segments.tolist(), within.tolist(), strict=True)
        ]

    def _checked(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.asarray(ids, dtype=np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            bad = rows.min() if rows.min() < 0 else rows.max()
            raise InputError(f"row {bad} is not among the store's {len(self)} rows")
        return rows


def _ages(is_initial: NDArray[np.bool_], before: int) -> NDArray[np.uint8]:
    """How many rows of its episode stand before each row, at most 255.

    Args:
        is_initial: of the new rows.
        before: how many rows of the first one's episode came earlier.
    """
    rows = np.arange(len(is_initial))
    start = np.maximum.accumulate(np.where(is_initial, rows, -before))
    return np.minimum(rows - start, 255).astype(np.uint8)
