"""How states become numbers that a table or a linear model can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError, reason_of
from covshift.estimation.labels import Labels
from covshift.estimation.logs import Logs
from covshift.validation import Dense, Vector, as_table


class Features(Protocol):
    """A map from a batch of states to rows of numbers, or to state numbers if `is_tabular`.

    An object of a user's own with these members can be given as `features`.
    """

    @property
    def is_tabular(self) -> bool:
        """Whether states are the numbers 0 … size - 1."""

    @property
    def size(self) -> int:
        """The number of features, or of states if `is_tabular`."""

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """An array of batch × features, or the number of each state."""


FeaturesLike: TypeAlias = Features | Callable[[NDArray[Any]], Any] | Dense | None


@final
@dataclass(frozen=True)
class Tabular:
    """Each state by its own number; states are whole numbers or one-hot vectors."""

    num_states: int
    is_tabular: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """The number of states."""
        return self.num_states

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """The number of each state."""
        numbers = states if states.ndim == 1 else states.argmax(axis=-1)
        bad = (numbers < 0) | (numbers >= self.num_states)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} states lie outside 0 … {self.num_states - 1}, the first is "
                f"{numbers[bad][0]}"
            )
        return np.asarray(numbers, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a given table, states × features, by state number."""

    phi: Dense
    is_tabular: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """The number of features."""
        return int(self.phi.shape[1])

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """The row of each state."""
        return np.asarray(self.phi[Tabular(len(self.phi))(states)])


@final
@dataclass(frozen=True, eq=False)
class Affine:
    """A constant 1 and the standardized entries of the observation.

    Args:
        mean: mean of each entry.
        scale: standard deviation of each entry, 1 where it never varies.
    """

    mean: Vector
    scale: Vector
    is_tabular: ClassVar[bool] = False

    @classmethod
    def fit(cls, logs: Logs) -> Affine:
        """Standardizes with the mean and deviation of these logs."""
        return cls(*_standardization(logs))

    @property
    def size(self) -> int:
        """The number of entries, and 1 for the constant."""
        return len(self.mean) + 1

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """1, then the standardized entries."""
        x = (_flat(states) - self.mean) / self.scale
        return np.column_stack([np.ones(len(states)), x])


@final
@dataclass(frozen=True, eq=False)
class RandomFourier:
    """A constant 1 and √(2/k) cos(ωᵀx + b): a smooth function of x is nearly linear in them.

    x are the standardized entries of the observation, ω is normal with deviation 1/`bandwidth`, and b is
    uniform in [0, 2π].

    Reference: Rahimi & Recht (2007).
    """

    mean: Vector
    scale: Vector
    omega: Dense
    phase: Vector
    is_tabular: ClassVar[bool] = False

    @classmethod
    def fit(
        cls, logs: Logs, count: int, rng: np.random.Generator, bandwidth: float = 1.0
    ) -> RandomFourier:
        """Draws `count` waves for the states of these logs."""
        mean, scale = _standardization(logs)
        omega = rng.standard_normal((len(mean), count)) / bandwidth
        return cls(mean, scale, omega, rng.uniform(0.0, 2.0 * np.pi, count))

    @property
    def size(self) -> int:
        """The number of waves, and 1 for the constant."""
        return len(self.phase) + 1

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """1, then the waves."""
        x = (_flat(states) - self.mean) / self.scale
        waves = np.cos(x @ self.omega + self.phase)
        return np.column_stack([np.ones(len(states)), np.sqrt(2.0 / len(self.phase)) * waves])


@final
@dataclass(frozen=True)
class Raw:
    """The observation itself as a flat row, for methods that learn features of their own."""

    num_entries: int
    is_tabular: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """The number of entries of an observation."""
        return self.num_entries

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """One flat row per observation."""
        return np.asarray(states.reshape(len(states), self.num_entries))


@final
@dataclass(frozen=True, eq=False)
class FunctionFeatures:
    """A function of the user's, whose output is checked at every call."""

    function: Callable[[NDArray[Any]], Any]
    size: int
    is_tabular: ClassVar[bool] = False

    def __call__(self, states: NDArray[Any]) -> NDArray[Any]:
        """The function's rows."""
        rows = _computed(self.function, states)
        if rows.shape != (len(states), self.size):
            raise InputError(
                f"the features have shape {rows.shape}, but ({len(states)}, {self.size}) is needed"
            )
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise InputError(f"the features of {int(bad.sum())} states are not finite numbers")
        return rows


WAVES, ROWS_PER_WAVE = 200, 20
"""Number of waves by default, and the fewest transitions for each of them."""


def default_waves(logs: Logs) -> RandomFourier:
    """The features of vectors unless others are given: 200 waves, fewer if the data are few, of a bandwidth √d/2 for d entries.

    The distance of two standardized states grows as √d, so that the bandwidth is a fixed share of it. Number and bandwidth
    were chosen on eight domains with `benchmarks/estimation_features.py`.
    """
    entries = _flat(logs.states(np.zeros(1, dtype=np.int64))).shape[1]
    count = min(WAVES, max(1, logs.num_transitions // ROWS_PER_WAVE))
    return RandomFourier.fit(logs, count, np.random.default_rng(0), 0.5 * np.sqrt(entries))


_SAVED: dict[str, Callable[..., Features]] = {
    "tabular": Tabular,
    "table": Table,
    "affine": Affine,
    "random-fourier": RandomFourier,
    "raw": Raw,
}
"""Features that are made of nothing but their fields, by the name they are saved under."""


def as_features(features: FeaturesLike, logs: Logs) -> Features:
    """The features that a user means.

    None gives a table if states are whole numbers or one-hot vectors, else `default_waves`. An array is a table of states × features; a function maps a batch of states to rows.
    """
    if features is None:
        count = _num_states(logs)
        return default_waves(logs) if count is None else Tabular(count)
    if hasattr(features, "is_tabular"):
        return cast(Features, features)
    if callable(features):
        if (labels := logs.state_labels) is not None:
            features = of_labels(features, labels)
        row = _computed(features, logs.states(np.zeros(1, dtype=np.int64)))
        if row.ndim != 2:
            raise InputError(
                f"the features of one state have shape {row.shape}, but (1, features) is needed"
            )
        return FunctionFeatures(features, row.shape[1])
    return Table(as_table("features", features, (-1, -1)))


def of_labels(
    features: Callable[[NDArray[Any]], Any], labels: Labels
) -> Callable[[NDArray[Any]], Any]:
    """A function of labels as one of the numbers that stand for them."""
    return lambda numbers: features(labels.decode(numbers))


def save_features(features: Features) -> tuple[str, dict[str, NDArray[Any]]]:
    """The kind of the features and the arrays they are made of; of a user's own only their number."""
    for kind, made in _SAVED.items():
        if type(features) is made:
            return kind, {name: np.asarray(value) for name, value in vars(features).items()}
    return "function", {"size": np.array(features.size)}


def load_features(kind: str, arrays: dict[str, NDArray[Any]], given: FeaturesLike) -> Features:
    """The features that `save_features` described; a user's own must be given again."""
    if kind == "function":
        if not callable(given):
            raise InputError("the estimate used a function of features: give it as `features`")
        if hasattr(given, "is_tabular"):
            return cast(Features, given)
        return FunctionFeatures(given, int(arrays["size"]))
    if kind not in _SAVED:
        raise InputError(f"features of the kind '{kind}' are not known")
    return _SAVED[kind](**{name: v if v.ndim else int(v) for name, v in arrays.items()})


def _computed(function: Callable[[NDArray[Any]], Any], states: NDArray[Any]) -> Dense:
    """What a user's function gives for a batch of states."""
    try:
        return np.asarray(function(states), dtype=np.float64)
    except (Exception, SystemExit) as error:  # Whatever a function raises that gives no features.
        raise InputError(
            f"the features cannot be computed from a batch of states: {reason_of(error)}"
        ) from error


def _flat(states: NDArray[Any]) -> Dense:
    return states.reshape(len(states), -1).astype(np.float64)


def _standardization(logs: Logs) -> tuple[Vector, Vector]:
    """Mean and deviation of each entry of the states before an action, in one pass over the data."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    for rows in logs.blocks():
        scaler.partial_fit(_flat(logs.states(rows)))
    return np.asarray(scaler.mean_), np.asarray(scaler.scale_)


def _num_states(logs: Logs) -> int | None:
    """The number of states if they are whole numbers or one-hot vectors, else None."""
    if logs.state_labels is not None:
        return len(logs.state_labels)
    first = logs.states(np.zeros(1, dtype=np.int64))
    if first.ndim == 2 and first.dtype.kind in "iub":
        blocks = (logs.states(rows) for rows in logs.blocks())
        one_hot = all(
            (states.astype(np.int64).sum(axis=1) == 1).all() and states.max() == 1
            for states in blocks
        )
        return int(first.shape[1]) if one_hot else None
    if first.ndim != 1 or first.dtype.kind not in "iu":
        return None
    top = 0
    for rows in logs.blocks():
        arrived = logs.next_states(rows)[~logs.terminated[rows]]
        top = max(top, int(logs.states(rows).max()), int(arrived.max(initial=0)))
    return top + 1
