"""Settings of a run as text: `key=value`, by the names of the options of `covshift train`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any, get_args, get_type_hints

from covshift.config.training import TrainConfig
from covshift.errors import InputError


def parse_settings(texts: Iterable[str], also: Collection[str] = ()) -> dict[str, Any]:
    """The settings that texts such as `ratio_discount=0.9` name, with values of their types.

    Args:
        texts: one setting each; dashes in a name count as underscores.
        also: further names, whose values stay text.

    Raises:
        InputError: there is no such setting, or its value is of another type; the message names what would work.

    Example:
        >>> parse_settings(["ratio-discount=0.9", "source_clip=false"])
        {'ratio_discount': 0.9, 'source_clip': False}
    """
    found: dict[str, Any] = {}
    for text in texts:
        written, separator, value = text.partition("=")
        name = written.strip().removeprefix("--").replace("-", "_")
        if not separator:
            raise InputError(f"'{text}' is no setting; write key=value, such as ratio_discount=0.9")
        if name not in also and name not in _types():
            near = difflib.get_close_matches(name, (*_types(), *also), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else _HELP
            raise InputError(f"there is no setting '{written.strip()}'; {hint}")
        found[name] = value if name in also else _value(name, value.strip())
    return found


def _value(name: str, text: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    kind = _types()[name]
    try:
        return TypeAdapter(kind).validate_python(None if text.lower() == "none" else text)
    except ValidationError as wrong:
        choices = [choice for part in (kind, *get_args(kind)) for choice in _choices(part)]
        allowed = f"say {' | '.join(choices)}" if choices else wrong.errors()[0]["msg"].lower()
        raise InputError(f"{name} cannot be '{text}': {allowed}") from None


def _choices(kind: Any) -> list[str]:
    return [part for part in get_args(kind) if isinstance(part, str)]


@cache
def _types() -> dict[str, Any]:
    """The type of each setting that text can give, by name."""
    types: dict[str, Any] = {}
    for branch in dataclasses.fields(TrainConfig):
        kind = get_type_hints(TrainConfig)[branch.name]
        if dataclasses.is_dataclass(kind):
            types |= get_type_hints(kind, include_extras=True)
    return {name: kind for name, kind in types.items() if name not in _FIXED}


_FIXED = ("behavior_policy", "data_seed")
"""Settings that an experiment chooses itself: the data, and a dataset for each seed."""

_HELP = "covshift train --help lists the settings"
