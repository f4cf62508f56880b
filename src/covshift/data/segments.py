"""What a store is made of: arrays that grow, and the stored observations of sealed shards and the open tail."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.format import COLUMNS, read_batch


@final
class GrowingArray:
    """An array that is appended to; its buffer doubles, so that an entry costs the same on average.

    `rows` is a view. One that was taken earlier stays as it was.
    """

    def __init__(self, dtype: Any) -> None:
        self._buffer: NDArray[Any] = np.empty(0, dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> NDArray[Any]:
        """All entries so far."""
        return self._buffer[: self._size]

    def reserve(self, size: int) -> None:
        """Makes room for `size` entries in all."""
        if size > len(self._buffer):
            grown = np.empty(size, dtype=self._buffer.dtype)
            grown[: self._size] = self.rows
            self._buffer = grown

    def extend(self, values: Any) -> None:
        """Adds entries."""
        size = self._size + len(values)
        if size > len(self._buffer):
            self.reserve(max(size, 2 * len(self._buffer)))
        self._buffer[self._size : size] = values
        self._size = size


class Segment(Protocol):
    """Stored observations of successive rows."""

    def blob(self, row: int) -> Any:
        """The stored bytes of a row, counted from the segment's first."""

    def table(self) -> NDArray[np.uint8]:
        """Observations of one width, a row of bytes each."""


@final
class Shard:
    """A sealed shard; its observations stay in the memory-mapped file."""

    def __init__(self, path: Path) -> None:
        self._batch = read_batch(path)
        stored = self._batch.column("observation")
        buffers = stored.buffers()
        if len(buffers) == 3:
            self._offsets = np.frombuffer(buffers[1], dtype=np.int64)[: len(stored) + 1]
        else:
            self._offsets = np.arange(len(stored) + 1, dtype=np.int64) * stored.type.byte_width
        self._bytes = memoryview(buffers[-1])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every column but the observation."""
        return {name: self._batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS}

    def blob(self, row: int) -> Any:
        """A slice of the file."""
        return self._bytes[self._offsets[row] : self._offsets[row + 1]]

    def table(self) -> NDArray[np.uint8]:
        """A view of the file."""
        used = np.frombuffer(self._bytes, dtype=np.uint8, count=int(self._offsets[-1]))
        return used.reshape(len(self), -1)


@final
class Tail:
    """Rows that are still in memory; more may follow."""

    def __init__(self) -> None:
        self._bytes, self._offsets = GrowingArray(np.uint8), GrowingArray(np.int64)
        self._offsets.extend([0])

    def extend(self, observations: list[bytes]) -> None:
        """Adds the stored bytes of each new row."""
        sizes = [len(blob) for blob in observations]
        self._offsets.extend(len(self._bytes) + np.cumsum(sizes))
        self._bytes.extend(np.frombuffer(b"".join(observations), dtype=np.uint8))

    def blob(self, row: int) -> Any:
        """A slice of the buffer."""
        start, stop = self._offsets.rows[row : row + 2]
        return self._bytes.rows[start:stop]

    def table(self) -> NDArray[np.uint8]:
        """A view of the buffer."""
        return self._bytes.rows.reshape(len(self._offsets) - 1, -1)
