"""A wide sum tree: draws items in proportion to their priorities, in a few microseconds.

It has three levels: priorities, sums of blocks of 256 priorities, and sums of 256 blocks. A sum is recomputed from its
parts whenever one of them changes, so that sums never drift. It is compiled by numba, since a draw takes only a few
hundred additions and NumPy's calls would dominate.
"""

from __future__ import annotations

from typing import Any, final

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError

FAN_OUT = 256


@final
class SumTree:
    """Priorities of `capacity` items, all 0 at first.

    An item of priority 0 is never drawn. If an update names an item twice, the later value counts.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InputError(f"a sum tree needs a capacity of at least 1, but it is {capacity}")
        self.capacity = capacity
        blocks = -(-capacity // FAN_OUT)
        groups = -(-blocks // FAN_OUT)
        self._leaves = np.zeros(groups * FAN_OUT * FAN_OUT)
        self._blocks = np.zeros(groups * FAN_OUT)
        self._groups = np.zeros(groups)

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._groups.sum())

    def get(self, items: ArrayLike) -> NDArray[np.float64]:
        """Priorities of the items."""
        return np.asarray(self._leaves[self._checked(items)])

    def set(self, items: ArrayLike, priorities: ArrayLike) -> None:
        """Sets priorities; each must be finite and not negative."""
        indices = self._checked(items)
        values = np.ascontiguousarray(np.broadcast_to(priorities, indices.shape), dtype=np.float64)
        if not (np.isfinite(values) & (values >= 0)).all():
            bad = values[~(np.isfinite(values) & (values >= 0))][0]
            raise InputError(f"a priority must be finite and not negative, but one is {bad}")
        _set(self._leaves, self._blocks, self._groups, indices.ravel(), values.ravel())

    def raise_to(self, power: float) -> None:
        """Raises every priority to a power; priorities of 0 stay 0."""
        positive = self._leaves > 0
        self._leaves[positive] **= power
        firsts = np.arange(0, len(self._leaves), FAN_OUT)
        _set(self._leaves, self._blocks, self._groups, firsts, self._leaves[firsts])

    def draw(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """The item into whose share of the total each number falls; numbers are in [0, 1)."""
        total = self.total
        if not total > 0:
            raise InputError("nothing can be drawn: all priorities are 0")
        items = np.empty(len(uniforms), dtype=np.int64)
        _draw(self._leaves, self._blocks, self._groups, uniforms * total, items)
        return items

    def check_valid(self) -> None:
        """Raises AssertionError unless every sum is that of its parts and every priority is valid."""
        assert np.isfinite(self._leaves).all()
        assert (self._leaves >= 0).all()
        assert (self._leaves[self.capacity :] == 0).all()
        leaves, blocks = self._leaves.reshape(-1, FAN_OUT), self._blocks.reshape(-1, FAN_OUT)
        np.testing.assert_allclose(self._blocks, leaves.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(self._groups, blocks.sum(axis=1), rtol=1e-12)

    def priorities(self) -> NDArray[np.float64]:
        """A copy of all priorities."""
        return self._leaves[: self.capacity].copy()

    def _checked(self, items: ArrayLike) -> NDArray[np.int64]:
        indices = np.asarray(items, dtype=np.int64)
        if indices.size and not (indices.min() >= 0 and indices.max() < self.capacity):
            bad = indices.min() if indices.min() < 0 else indices.max()
            raise InputError(f"item {bad} is not among the tree's {self.capacity} items")
        return indices


@numba.njit(cache=True, fastmath={"reassoc"})
def _set(leaves: Any, blocks: Any, groups: Any, items: Any, values: Any) -> None:
    for k in range(len(items)):
        leaves[items[k]] = values[k]
    for k in range(len(items)):
        block = items[k] // FAN_OUT
        total = 0.0
        for leaf in range(block * FAN_OUT, (block + 1) * FAN_OUT):
            total += leaves[leaf]
        blocks[block] = total
    for k in range(len(items)):
        group = items[k] // (FAN_OUT * FAN_OUT)
        total = 0.0
        for block in range(group * FAN_OUT, (group + 1) * FAN_OUT):
            total += blocks[block]
        groups[group] = total


@numba.njit(cache=True)
def _descend(sums: Any, start: int, stop: int, left: float) -> tuple[int, float]:
    """The first part at which the running sum exceeds `left`, and how far `left` reaches into it.

    If rounding keeps the whole sum from exceeding `left`, the last part that is not 0.
    """
    found, within = -1, 0.0
    for part in range(start, stop):
        value = sums[part]
        if value > 0.0:
            found, within = part, left
            if left < value:
                return found, within
            left -= value
    return found, sums[found]


@numba.njit(cache=True)
def _draw(leaves: Any, blocks: Any, groups: Any, targets: Any, items: Any) -> None:
    for k in range(len(targets)):
        group, left = _descend(groups, 0, len(groups), targets[k])
        block, left = _descend(blocks, group * FAN_OUT, (group + 1) * FAN_OUT, left)
        leaf, left = _descend(leaves, block * FAN_OUT, (block + 1) * FAN_OUT, left)
        items[k] = leaf
