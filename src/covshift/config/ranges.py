"""Ranges that a configuration's numbers must lie in, declared beside each field."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeAlias, final, get_args, get_type_hints

from covshift.errors import InputError


@final
@dataclass(frozen=True)
class Range:
    """The interval from `least` to `most`, each end included unless it is marked open."""

    least: float
    most: float = float("inf")
    open_below: bool = False
    open_above: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value lies in the range; NaN does not."""
        above = value > self.least if self.open_below else value >= self.least
        return above and (value < self.most if self.open_above else value <= self.most)

    def __str__(self) -> str:
        if self.most == float("inf"):
            if self.least == 0:
                if self.open_below:
                    return "must be positive and finite" if self.open_above else "must be positive"
                return "must not be negative or infinite"
            return f"must be at least {self.least:,}"
        left, right = "(" if self.open_below else "[", ")" if self.open_above else "]"
        return f"must lie in {left}{self.least:,}, {self.most:,}{right}"


Count: TypeAlias = Annotated[int, Range(1, 10**9)]
"""Beyond a billion a typing error is likelier than a wish."""

Repeats: TypeAlias = Annotated[int, Range(1, 100_000)]
"""Each episode of an evaluation takes time, and its result is kept in memory."""

Steps: TypeAlias = Annotated[int, Range(1, 1000)]
"""Each step of a target looks at one more state per transition."""

Seed: TypeAlias = Annotated[int, Range(0, 2**63, open_above=True)]
"""Every file can hold such a number."""

Share: TypeAlias = Annotated[float, Range(0, 1)]
Positive: TypeAlias = Annotated[float, Range(0, open_below=True, open_above=True)]
NotNegative: TypeAlias = Annotated[float, Range(0, open_above=True)]
Bound: TypeAlias = Annotated[float, Range(0, open_below=True)]
"""An infinite one is none."""


def check_ranges(options: Any) -> None:
    """Checks the fields of a dataclass that declare a range; None passes.

    Raises:
        InputError: a value is out of its range; the sentence names the field, the range and the value.
    """
    kind: type = type(options)
    for name, allowed in _declared(kind):
        value = getattr(options, name)
        if value is not None and not allowed.holds(value):
            raise InputError(f"{name} {allowed}, but it is {value}")


def check_shares(policies: Collection[str], shares: Collection[float]) -> None:
    """Checks the share of each policy, if shares are given: one per policy, above 0, with the sum 1.

    Raises:
        InputError: they are not such shares.
    """
    if not shares:
        return
    if len(shares) != len(policies) or not all(share > 0 for share in shares):
        raise InputError(
            f"each of the {len(policies)} policies needs a share above 0, but the shares are {shares}"
        )
    if not abs(sum(shares) - 1.0) < 1e-9:
        raise InputError(f"the shares of the policies {shares} must have the sum 1")


@cache
def _declared(kind: type) -> list[tuple[str, Range]]:
    """The fields of a dataclass that declare a range, with it; reading the types takes milliseconds."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind)]
    return [(name, allowed) for name in names for allowed in _ranges(hints[name])]


def _ranges(hint: Any) -> list[Range]:
    """The ranges in a type such as `Annotated[float, Range(0, 1)] | None`."""
    if isinstance(hint, Range):
        return [hint]
    return [found for part in get_args(hint) for found in _ranges(part)]
