"""Which rows to draw: uniformly over states or transitions, or transitions by priority.

A sampler draws row numbers from a window (lo, hi) of a store. `save` returns all of its state, including that of the
generator, and a sampler that is restored from it draws the same rows.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.data.sum_tree import SumTree
from covshift.errors import InputError

_TEMPERED_ROWS = 20_000
_LEAST_TEMPERING = 0.01
"""Nearly uniform already, and still invertible."""


@final
class UniformSampler:
    """Every eligible row of the window with the same probability.

    Args:
        eligible: which rows may be drawn: `store.is_state` for the ratio, `store.is_transition` for values.
        rng: generator of the draws.
        window: (lo, hi) over row numbers; all rows by default.
    """

    def __init__(
        self,
        eligible: NDArray[np.bool_],
        rng: np.random.Generator,
        window: tuple[int, int] | None = None,
    ) -> None:
        self.eligible, self.rng = eligible, rng
        self.window = (0, len(eligible)) if window is None else window
        self.slide(*self.window)

    def slide(self, lo: int, hi: int, eligible: NDArray[np.bool_] | None = None) -> None:
        """Moves the window; if the store has grown, `eligible` covers its new rows too."""
        self.eligible = self.eligible if eligible is None else eligible
        _check_window(lo, hi, len(self.eligible))
        # `any` stops at the first row that can be drawn, so that a long window costs nothing.
        if not self.eligible[lo:hi].any():
            raise InputError(f"no row of the window ({lo}, {hi}) can be drawn")
        self.window = (lo, hi)

    def sample(self, count: int) -> NDArray[np.int64]:
        """Draws `count` rows independently; a row that is not eligible is drawn again."""
        ids = self.rng.integers(*self.window, size=count)
        while not (fits := self.eligible[ids]).all():
            ids[~fits] = self.rng.integers(*self.window, size=int((~fits).sum()))
        return np.asarray(ids)

    def check_valid(self) -> None:
        """Raises AssertionError unless the window lies within the rows."""
        assert 0 <= self.window[0] < self.window[1] <= len(self.eligible)

    def save(self) -> dict[str, Any]:
        """All state that changes."""
        return {"window": list(self.window), "rng": self.rng.bit_generator.state}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continues from what was saved."""
        self.slide(*saved["window"])
        self.rng.bit_generator.state = saved["rng"]


@final
class ListSampler:
    """Like `UniformSampler`, from a list of the eligible rows: for rows that are rare, and windows that seldom move.

    Args:
        eligible: which rows may be drawn.
        rng: generator of the draws.
        window: (lo, hi) over row numbers.
    """

    def __init__(
        self, eligible: NDArray[np.bool_], rng: np.random.Generator, window: tuple[int, int]
    ) -> None:
        self.rng = rng
        self.slide(*window, eligible)

    def slide(self, lo: int, hi: int, eligible: NDArray[np.bool_]) -> None:
        """Moves the window over the rows that may be drawn, which may have become more."""
        _check_window(lo, hi, len(eligible))
        self.window, self._rows = (lo, hi), lo + np.flatnonzero(eligible[lo:hi])

    @property
    def count(self) -> int:
        """Number of rows that can be drawn."""
        return len(self._rows)

    def sample(self, count: int) -> NDArray[np.int64]:
        """Draws `count` rows independently; none if no row is eligible."""
        if not len(self._rows):
            return self._rows
        return self._rows[self.rng.integers(len(self._rows), size=count)]

    def save(self) -> dict[str, Any]:
        """The state of the generator; the window is given again by who restores."""
        return {"rng": self.rng.bit_generator.state}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continues from what was saved."""
        self.rng.bit_generator.state = saved["rng"]


@final
class PrioritizedSampler:
    """Transitions in proportion to max(priority, floor)^tempering, mixed with uniform draws.

    Args:
        eligible: which rows may be drawn: `store.is_transition`.
        rng: generator of the draws.
        capacity: length of the longest window.
        floor: smallest priority, so that every row can be drawn; with 0, rows of priority 0 are never drawn.
        tempering: exponent of the priority; 1 draws in proportion to the priority, 0 uniformly.
        uniform_share: share of draws that ignore priorities.
    """

    def __init__(
        self,
        eligible: NDArray[np.bool_],
        rng: np.random.Generator,
        capacity: int,
        *,
        floor: float = 1e-3,
        tempering: float = 1.0,
        uniform_share: float = 0.0,
    ) -> None:
        for name, value in (("tempering", tempering), ("uniform_share", uniform_share)):
            if not 0.0 <= value <= 1.0:
                raise InputError(f"{name} must lie in [0, 1], but it is {value}")
        if floor < 0:
            raise InputError(f"floor must not be negative, but it is {floor}")
        self.eligible, self.rng = eligible, rng
        self.floor, self.tempering, self.uniform_share = floor, tempering, uniform_share
        self._most_tempering = tempering
        self.window = (0, 0)
        self._count = 0
        self._tree = SumTree(capacity)

    def slide(
        self,
        lo: int,
        hi: int,
        priority: float = 1.0,
        eligible: NDArray[np.bool_] | None = None,
    ) -> None:
        """Moves the window forwards; rows that enter it get `priority`, rows that leave it are forgotten.

        Args:
            lo: first row of the window.
            hi: the row after its last.
            priority: priority of the rows that enter.
            eligible: which rows may be drawn, if the store has grown; earlier rows must not have changed.
        """
        if not (np.isfinite(priority) and priority >= 0):
            raise InputError(f"priority must be finite and not negative, but it is {priority}")
        self.eligible = self.eligible if eligible is None else eligible
        before = self.window
        if lo < before[0] or hi < before[1]:
            raise InputError(f"a window moves forwards only, but ({lo}, {hi}) follows {before}")
        if hi - lo > self._tree.capacity:
            raise InputError(
                f"the window ({lo}, {hi}) is longer than the capacity {self._tree.capacity}"
            )
        _check_window(lo, hi, len(self.eligible))
        gone = np.arange(before[0], min(lo, before[1]))
        self._tree.set(gone % self._tree.capacity, 0.0)
        self.window = (lo, hi)
        entered = np.arange(max(lo, before[1]), hi)
        self._count += int(self.eligible[entered].sum()) - int(self.eligible[gone].sum())
        self.update(entered, np.full(len(entered), priority))

    def update(self, ids: ArrayLike, priorities: ArrayLike) -> None:
        """Sets the priorities of rows; those that are not transitions or have left the window are skipped."""
        rows = np.asarray(ids, dtype=np.int64)
        values = np.broadcast_to(np.asarray(priorities, dtype=np.float64), rows.shape)
        inside = self._can_be_drawn(rows)
        floored = np.maximum(values[inside], self.floor)
        tempered = np.where(floored > 0, floored**self.tempering, 0.0)
        self._tree.set(rows[inside] % self._tree.capacity, tempered)

    def sample(self, count: int) -> NDArray[np.int64]:
        """Draws `count` rows, one from each of `count` equal strata of the priorities."""
        strata = (np.arange(count) + self.rng.random(count)) / count
        ids = self._rows(self._tree.draw(np.minimum(strata, 1.0 - 2.0**-53)))
        if self.uniform_share > 0:
            uniform = UniformSampler(self.eligible, self.rng, self.window)
            chosen = self.rng.random(count) < self.uniform_share
            ids[chosen] = uniform.sample(int(chosen.sum()))
        return ids

    def probabilities(self, ids: ArrayLike) -> NDArray[np.float64]:
        """The probability of each row in one draw."""
        rows = np.asarray(ids, dtype=np.int64)
        inside = self._can_be_drawn(rows)
        shares = self._tree.get(rows % self._tree.capacity) / self._tree.total
        uniform = self.uniform_share / max(1, self._count)
        return np.where(inside, (1 - self.uniform_share) * shares + uniform, 0.0)

    def effective_share(self) -> float:
        """ESS/N = 1/(N Σ p²) of the law that rows are drawn from; 1 if it is uniform."""
        rows = np.arange(*self.window)
        law = self.probabilities(rows[self.eligible[rows]])
        return float(1.0 / (len(law) * np.square(law).sum()))

    def keep_effective_share(self, floor: float) -> None:
        """Sets the largest tempering, up to the one given first, at which the law's ESS/N is at least `floor`.

        The share falls as the tempering grows. The tempering is found by bisection on at most 20 000 rows, evenly
        spaced. Where rows of priority 0 keep the share below the floor at any tempering, it is nearly 0.
        """
        rows = np.arange(*self.window)
        rows = rows[self.eligible[rows]][:: -(-self._count // _TEMPERED_ROWS)]
        with np.errstate(divide="ignore"):  # A priority of 0 stays 0 at every tempering.
            logs = np.log(self._tree.get(rows % self._tree.capacity)) / self.tempering

        def share(tempering: float) -> float:
            law = np.exp(tempering * (logs - logs.max()))
            law = (1 - self.uniform_share) * law / law.sum() + self.uniform_share / len(law)
            return float(1.0 / (len(law) * np.square(law).sum()))

        if not np.isfinite(logs.max()):  # All priorities are 0.
            return
        low, high = _LEAST_TEMPERING, self._most_tempering
        if share(high) >= floor:
            low = high
        for _ in range(20):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if share(middle) >= floor else (low, middle)
        self._tree.raise_to(low / self.tempering)
        self.tempering = low

    def check_valid(self) -> None:
        """Raises AssertionError unless exactly the window's transitions have priorities."""
        self._tree.check_valid()
        rows = np.arange(*self.window)
        outside = np.ones(self._tree.capacity, dtype=bool)
        outside[rows[self.eligible[rows]] % self._tree.capacity] = False
        assert (self._tree.priorities()[outside] == 0).all()
        assert self._count == int(self.eligible[rows].sum())

    def save(self) -> dict[str, Any]:
        """All state that changes: `priorities` is an array over the window's rows, the rest is JSON."""
        return {
            "window": list(self.window),
            "rng": self.rng.bit_generator.state,
            "tempering": self.tempering,
            "priorities": self._tree.get(np.arange(*self.window) % self._tree.capacity),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Continues from what was saved."""
        self.window = (int(saved["window"][0]), int(saved["window"][1]))
        self._count = int(self.eligible[slice(*self.window)].sum())
        self.rng.bit_generator.state = saved["rng"]
        self.tempering = float(saved.get("tempering", self.tempering))
        self._tree = SumTree(self._tree.capacity)
        self._tree.set(np.arange(*self.window) % self._tree.capacity, saved["priorities"])

    def _can_be_drawn(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        inside = (rows >= self.window[0]) & (rows < self.window[1])
        inside[inside] = self.eligible[rows[inside]]
        return inside

    def _rows(self, leaves: NDArray[np.int64]) -> NDArray[np.int64]:
        lo = self.window[0]
        return lo + (leaves - lo) % self._tree.capacity


def _check_window(lo: int, hi: int, size: int) -> None:
    if not 0 <= lo < hi <= size:
        raise InputError(f"the window ({lo}, {hi}) does not lie within the {size} rows")
