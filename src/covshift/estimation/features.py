"""How states become numbers that a table or a linear model can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.logs import Logs
from covshift.validation import Dense, Vector, as_table


class Features(Protocol):
    """A map from a batch of states to rows of numbers, or to state numbers if `is_tabular`."""

    kind: ClassVar[str]

    @property
    def is_tabular(self) -> bool:
        """Whether states are numbers 0 … size - 1."""

    @property
    def size(self) -> int:
        """How many features, or how many states."""

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """batch × features, or the number of each state."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What makes the same features again."""


FeaturesLike: TypeAlias = Features | Callable[[NDArray[Any]], Any] | Dense | None


@final
@dataclass(frozen=True)
class Tabular:
    """Each state by its own number; states are whole numbers or one-hot vectors."""

    num_states: int
    kind: ClassVar[str] = "tabular"
    is_tabular: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """The number of states."""
        return self.num_states

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """State numbers."""
        numbers = states if states.ndim == 1 else states.argmax(axis=-1)
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self.num_states):
            bad = (numbers < 0) | (numbers >= self.num_states)
            raise InputError(
                f"{int(bad.sum())} states lie outside 0 … {self.num_states - 1}, the first is "
                f"{numbers[bad][0]}"
            )
        return np.asarray(numbers, dtype=np.int64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The number of states."""
        return {"num_states": np.array(self.num_states)}


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a given table, states × features, by state number."""

    phi: Dense
    kind: ClassVar[str] = "table"
    is_tabular: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """The number of features."""
        return int(self.phi.shape[1])

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """A row for each state."""
        return np.asarray(self.phi[Tabular(len(self.phi))(states)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The table."""
        return {"phi": self.phi}


@final
@dataclass(frozen=True, eq=False)
class Affine:
    """1 and the standardized entries of the observation.

    Args:
        mean: of each entry.
        scale: its standard deviation, 1 where it never varies.
    """

    mean: Vector
    scale: Vector
    kind: ClassVar[str] = "affine"
    is_tabular: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Entries and the constant."""
        return len(self.mean) + 1

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """1, then the entries."""
        return np.column_stack([np.ones(len(states)), _standardize(self, states)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Mean and scale."""
        return {"mean": self.mean, "scale": self.scale}


@final
@dataclass(frozen=True, eq=False)
class RandomFourier:
    """1 and √(2/k) cos(ωᵀx + b): a smooth function of x is nearly linear in them.

    x are the standardized entries, ω is normal with deviation 1/`bandwidth`, b uniform in [0, 2π].

    Reference: Rahimi & Recht (2007).
    """

    mean: Vector
    scale: Vector
    omega: Dense
    phase: Vector
    kind: ClassVar[str] = "random-fourier"
    is_tabular: ClassVar[bool] = False

    @classmethod
    def fit(
        cls, logs: Logs, count: int, rng: np.random.Generator, bandwidth: float = 1.0
    ) -> RandomFourier:
        """Features for the states of these logs."""
        mean, scale = _moments(logs)
        omega = rng.standard_normal((len(mean), count)) / bandwidth
        return cls(mean, scale, omega, rng.uniform(0.0, 2.0 * np.pi, count))

    @property
    def size(self) -> int:
        """Waves and the constant."""
        return len(self.phase) + 1

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """1, then the waves."""
        waves = np.cos(_standardize(self, states) @ self.omega + self.phase)
        return np.column_stack([np.ones(len(states)), np.sqrt(2.0 / len(self.phase)) * waves])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that was drawn."""
        return {"mean": self.mean, "scale": self.scale, "omega": self.omega, "phase": self.phase}


@final
@dataclass(frozen=True)
class Raw:
    """The observation itself, flat, for methods that bring features of their own."""

    num_entries: int
    kind: ClassVar[str] = "raw"
    is_tabular: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Entries of an observation."""
        return self.num_entries

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """One row an observation."""
        return np.asarray(states.reshape(len(states), self.num_entries))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """How many entries."""
        return {"num_entries": np.array(self.num_entries)}


@final
@dataclass(frozen=True, eq=False)
class FunctionFeatures:
    """A function of the user's; it cannot be saved, so `RatioEstimate.load` wants it again."""

    function: Callable[[NDArray[Any]], Any]
    size: int
    kind: ClassVar[str] = "function"
    is_tabular: ClassVar[bool] = False

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """What the function says, checked."""
        rows = np.asarray(self.function(states), dtype=np.float64)
        if rows.shape != (len(states), self.size):
            raise InputError(
                f"the features have shape {rows.shape}, but ({len(states)}, {self.size}) is needed"
            )
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise InputError(f"the features of {int(bad.sum())} states are not finite numbers")
        return rows

    def arrays(self) -> dict[str, NDArray[Any]]:
        """How many."""
        return {"size": np.array(self.size)}


def as_features(features: FeaturesLike, logs: Logs) -> Features:
    """The features that a user means.

    None gives a table where states are whole numbers or one-hot vectors, else 1 and the standardized
    observation. An array is a table of states × features; a function maps a batch of states to rows.
    """
    if features is None:
        count = _num_states(logs)
        return Affine(*_moments(logs)) if count is None else Tabular(count)
    if hasattr(features, "is_tabular"):
        return cast(Features, features)
    if callable(features):
        sample = np.asarray(features(logs.block(np.arange(1)).s_tm1))
        if sample.ndim != 2:
            raise InputError(
                f"the features of one state have shape {sample.shape}, but (1, features) is needed"
            )
        return FunctionFeatures(features, sample.shape[1])
    return Table(as_table("features", features, (-1, -1)))


def load_features(kind: str, arrays: dict[str, NDArray[Any]], given: FeaturesLike) -> Features:
    """The features that `arrays()` wrote; a function must be given again."""
    if kind == "function":
        if not callable(given):
            raise InputError("the estimate used a function of features: give it as `features`")
        return FunctionFeatures(given, int(arrays["size"]))
    if kind == "tabular":
        return Tabular(int(arrays["num_states"]))
    if kind == "raw":
        return Raw(int(arrays["num_entries"]))
    kinds: dict[str, Any] = {"table": Table, "affine": Affine, "random-fourier": RandomFourier}
    if kind not in kinds:
        raise InputError(f"features of the kind '{kind}' are not known")
    made: Features = kinds[kind](**arrays)
    return made


def _standardize(features: Affine | RandomFourier, states: NDArray[Any]) -> Dense:
    flat = states.reshape(len(states), -1).astype(np.float64)
    return np.asarray((flat - features.mean) / features.scale)


def _moments(logs: Logs) -> tuple[Vector, Vector]:
    """Mean and deviation of each entry over all states before an action."""
    total: Any = 0.0
    squares: Any = 0.0
    for block in logs.blocks():
        flat = block.s_tm1.reshape(len(block.a_tm1), -1).astype(np.float64)
        total, squares = total + flat.sum(axis=0), squares + (flat**2).sum(axis=0)
    mean = total / len(logs)
    scale = np.sqrt(np.maximum(squares / len(logs) - mean**2, 0.0))
    return mean, np.where(scale > 1e-8 * (1.0 + np.abs(mean)), scale, 1.0)


def _num_states(logs: Logs) -> int | None:
    """How many states there are if they are numbers or one-hot vectors, else None."""
    first = logs.block(np.arange(1)).s_tm1
    if first.ndim == 2 and first.dtype.kind in "iub":
        one_hot = all(
            (b.s_tm1.astype(np.int64).sum(axis=1) == 1).all() and b.s_tm1.max() == 1
            for b in logs.blocks()
        )
        return int(first.shape[1]) if one_hot else None
    if first.ndim != 1 or first.dtype.kind not in "iu":
        return None
    top = 0
    for block in logs.blocks():
        arrived = block.s_t[~block.terminated_t]
        top = max(top, int(block.s_tm1.max()), int(arrived.max()) if len(arrived) else 0)
    return top + 1
