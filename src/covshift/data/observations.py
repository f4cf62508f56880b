"""The stored observations of rows, decoded into states when they are read."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.codec import FrameCodec
from covshift.data.growing_array import GrowingArray

_ROWS_PER_SEGMENT = 14
"""Rows that are copied one by one in the time that it takes to look at one more segment."""


class _Segment(NamedTuple):
    """Stored bytes of successive rows: `data[offsets[k] : offsets[k + 1]]` are those of the k-th."""

    offsets: NDArray[np.int64]
    data: memoryview

    def blob(self, row: int) -> memoryview:
        """The stored bytes of a row, counted from the segment's first."""
        return self.data[self.offsets[row] : self.offsets[row + 1]]

    def table(self) -> NDArray[np.uint8]:
        """The stored bytes of all rows as an array with one row each, where all have the same size."""
        used = np.frombuffer(self.data, dtype=np.uint8, count=int(self.offsets[-1]))
        return used.reshape(len(self.offsets) - 1, -1)


@final
class Observations:
    """Observations by row number, in memory-mapped shards or in memory.

    A state is the stack of the newest `stack` observations of its episode, oldest first and zero before the
    episode's first; where `stack` is 1, it is the observation itself.

    Args:
        codec: turns stored bytes into observations.
        stack: how many observations make a state.
    """

    def __init__(self, codec: FrameCodec, stack: int) -> None:
        self.codec, self.stack = codec, stack
        self._segments: list[_Segment] = []
        self._starts = np.empty(0, dtype=np.int64)
        self._size = 0
        self._tail: tuple[GrowingArray, GrowingArray] | None = None

    def __len__(self) -> int:
        return self._size

    def append_shard(self, stored: Any) -> None:
        """Appends the observations of a shard, which stay in the memory-mapped file.

        Args:
            stored: the Arrow array of the shard's column `observation`.
        """
        buffers = stored.buffers()
        if len(buffers) == 3:
            offsets = np.frombuffer(buffers[1], dtype=np.int64)[: len(stored) + 1]
        else:
            offsets = np.arange(len(stored) + 1, dtype=np.int64) * stored.type.byte_width
        self._tail = None
        self._segments.append(_Segment(offsets, memoryview(buffers[-1])))
        self._starts = np.append(self._starts, self._size)
        self._size += len(stored)

    def append(self, blobs: list[bytes]) -> None:
        """Appends observations that are in memory."""
        if self._tail is None:
            self._tail = GrowingArray(np.int64), GrowingArray(np.uint8)
            self._tail[0].extend([0])
            self._segments.append(_Segment(np.zeros(1, np.int64), memoryview(b"")))
            self._starts = np.append(self._starts, self._size)
        offsets, data = self._tail
        offsets.extend(len(data) + np.cumsum([len(blob) for blob in blobs]))
        data.extend(np.frombuffer(b"".join(blobs), dtype=np.uint8))
        self._segments[-1] = _Segment(offsets.rows, data.rows.data)
        self._size += len(blobs)

    def stored(self, row: int) -> NDArray[Any]:
        """The decoded values of one row's observation alone, flat and of whatever size they are."""
        return self.codec.decode(self._blobs(np.array([row]))[0])

    def singles(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The observations of these rows, never stacked."""
        if self.codec.encoding != "zstd":
            return self.codec.decode_plain(self._plain(rows))
        out = np.empty((len(rows), *self.codec.shape), self.codec.dtype)
        self._fill(out, np.arange(len(rows)), rows)
        return out

    def states(self, rows: NDArray[np.int64], ages: NDArray[np.int64]) -> NDArray[Any]:
        """The states at these rows.

        Args:
            rows: row numbers.
            ages: how many rows of its episode come before each row.
        """
        if self.stack == 1:
            return self.singles(rows)
        return self._stacks(rows, ages)

    def pairs(
        self,
        first: NDArray[np.int64],
        first_ages: NDArray[np.int64],
        second: NDArray[np.int64],
        second_ages: NDArray[np.int64],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The states at both rows of each pair; frames that two successive rows share are decoded once."""
        if self.stack == 1:
            return self.singles(first), self.singles(second)
        newer = self._stacks(second, second_ages)
        older = np.zeros_like(newer)
        # The stack of the row before is the newer one moved by a frame, except for its oldest frame.
        older[:, 1:] = newer[:, :-1]
        follows = (second == first + 1) & (second_ages > 0)
        full = np.flatnonzero(follows & (first_ages >= self.stack - 1))
        self._fill(older, full * self.stack, first[full] - self.stack + 1)
        if not follows.all():
            older[~follows] = self._stacks(first[~follows], first_ages[~follows])
        return older, newer

    def _stacks(self, rows: NDArray[np.int64], ages: NDArray[np.int64]) -> NDArray[Any]:
        """The stack of each row."""
        out = np.zeros((len(rows), self.stack, *self.codec.shape), self.codec.dtype)
        lags = np.arange(self.stack - 1, -1, -1)
        inside = ages[:, None] >= lags
        self._fill(out, np.flatnonzero(inside), (rows[:, None] - lags)[inside])
        return out

    def _fill(self, out: NDArray[Any], slots: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Writes the observations of rows into slots of an array, counted in observations."""
        if self.codec.encoding != "zstd":
            out.reshape(-1, *self.codec.shape)[slots] = self.singles(rows)
        elif len(rows):
            self.codec.decode_into(out, slots, self._blobs(rows))

    def _plain(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The stored bytes of rows whose observations are not compressed, one row of the array each."""
        size = self.codec.stored_bytes
        if len(rows) < _ROWS_PER_SEGMENT * len(self._segments):
            joined = bytearray().join(self._blobs(rows))
            return np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), size)
        segments, within = self._locate(rows)
        out = np.empty((len(rows), size), dtype=np.uint8)
        for segment in np.unique(segments):
            here = segments == segment
            out[here] = self._segments[segment].table()[within[here]]
        return out

    def _blobs(self, rows: NDArray[np.int64]) -> list[memoryview]:
        """The stored bytes of each row."""
        segments, within = self._locate(rows)
        return [
            self._segments[segment].blob(row)
            for segment, row in zip(segments.tolist(), within.tolist(), strict=True)
        ]

    def _locate(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The segment of each row, and the row's number within it."""
        segments = np.searchsorted(self._starts, rows, side="right") - 1
        return segments, rows - self._starts[segments]
