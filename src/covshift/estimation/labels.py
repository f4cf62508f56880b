"""Labels of states and actions, such as words, as the numbers that estimators compute with."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of states or of actions; a label's number is its place.

    Args:
        what: `state` or `action`, for messages.
        values: distinct hashable values.
    """

    what: str
    values: tuple[Hashable, ...]

    @classmethod
    def of(cls, what: str, *columns: Iterable[Any]) -> Labels:
        """The distinct values of columns, sorted if they can be compared, else in the order in which they appear."""
        found: dict[Hashable, None] = {}
        for column in columns:
            try:
                found.update(dict.fromkeys(column))
            except TypeError as error:
                raise InputError(
                    f"a label of a {what} must be hashable, such as a word, a number or a tuple: {error}"
                ) from error
        try:
            return cls(what, tuple(sorted(found)))  # type: ignore[type-var]
        except TypeError:
            return cls(what, tuple(found))

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"{len(self)} labels: {shorten(self.values)}"

    def encode(self, labels: Any) -> NDArray[np.int64]:
        """The number of each label; a single label counts as one of a batch.

        Raises:
            InputError: a label does not occur in the data.
        """
        given = as_label_list(self.what, labels)
        try:
            return np.fromiter(map(self._numbers.__getitem__, given), np.int64, len(given))
        except (KeyError, TypeError):
            unknown = next(label for label in given if label not in self.values)
            raise InputError(
                f"the {self.what} {unknown!r} does not occur in the data, which have {shorten(self.values)}"
            ) from None

    def decode(self, numbers: ArrayLike) -> NDArray[Any]:
        """The label of each number, as an array of objects."""
        return np.asarray(self._array[np.asarray(numbers)], dtype=object)

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {value: number for number, value in enumerate(self.values)}

    @cached_property
    def _array(self) -> NDArray[Any]:
        return objects(self.values)


def as_label_list(what: str, labels: Any) -> list[Any]:
    """Labels as Python values; rows of an array of several axes are tuples."""
    if isinstance(labels, str | bytes | tuple) or not hasattr(labels, "__len__"):
        return [labels]
    if isinstance(labels, np.ndarray):
        if labels.ndim == 0:
            return [labels.item()]
        values = labels.tolist()
        return values if labels.ndim == 1 else [_as_tuple(value) for value in values]
    if hasattr(labels, "tolist"):
        return list(labels.tolist())
    return [_as_tuple(label) if isinstance(label, list) else label for label in labels]


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array of these values with one axis, also where they are tuples."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def shorten(values: Sequence[Any], most: int = 6) -> str:
    """The first values as text."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown}, … ({len(values):,} in all)"


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(part) for part in value) if isinstance(value, list) else value
