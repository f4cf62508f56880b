"""Arrays that grow at their end."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray


@final
class GrowingArray:
    """An array that entries are appended to; appending takes constant time per entry on average.

    `rows` is a view of the entries so far. A view that was taken earlier keeps its length and content.
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
        """Appends entries; the buffer doubles when it is full."""
        size = self._size + len(values)
        if size > len(self._buffer):
            self.reserve(max(size, 2 * len(self._buffer)))
        self._buffer[self._size : size] = values
        self._size = size
