"""JSON files as typed values; content that does not fit its type is refused in one sentence.

The types are ordinary dataclasses and TypedDicts, checked by pydantic. msgspec is smaller, but it ignores unknown keys
of plain dataclasses, and its errors are finished sentences that do not say what the bad value was.
"""

from __future__ import annotations

import difflib
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

from covshift.errors import InputError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_LARGEST = 2**63 - 1
_SETTINGS: Any = {"strict": True, "extra": "forbid"}
"""Text is never taken for a number, and no key is ignored."""


def read_json(path: Path, kind: type[T], *, finite: bool = True, largest: int = _LARGEST) -> T:
    """The content of a JSON file as a value of a type; see `parse_json`.

    Raises:
        InputError: the file is not an ordinary file, cannot be read, or does not fit the type.
    """
    try:
        # A named pipe would be waited for.
        if path.exists() and not path.is_file():
            raise InputError(f"{path} cannot be read: it is not an ordinary file")
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return parse_json(text, kind, str(path), finite=finite, largest=largest)


def parse_json(
    text: str | bytes,
    kind: type[T],
    source: str,
    *,
    finite: bool = True,
    largest: int = _LARGEST,
) -> T:
    """JSON as a value of a type.

    Args:
        text: the JSON.
        kind: a dataclass, a TypedDict, or a list or dict of these.
        source: the file, or whatever the text comes from, for messages.
        finite: refuse numbers that are not finite.
        largest: refuse whole numbers beyond this.

    Raises:
        InputError: the text is not JSON, is nested more than 200 levels deep, or does not fit the type. The message
            names the source and the key.
    """
    # Pydantic takes a tenth of a second to import, which commands that read no JSON should not pay.
    from pydantic import ValidationError

    try:
        value: T | None = _validator(cast(Any, kind), finite).validate_json(text)
    except ValidationError as wrong:
        raise InputError(f"{source}: {_sentence(wrong.errors()[0], kind)}") from None
    if value is None:
        raise InputError(f"{source}: the file must hold an object, but it is null")
    json.loads(text, parse_int=lambda digits: _check_size(digits, source, largest))
    return value


@functools.cache
def _validator(kind: Any, finite: bool) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    # Settings cannot be given for a dataclass itself, but they reach one inside of a union.
    return TypeAdapter(kind | None, config=_SETTINGS | {"allow_inf_nan": not finite})


def _check_size(digits: str, source: str, largest: int) -> int:
    number = int(digits)
    if abs(number) > largest:
        raise InputError(f"{source}: {digits[:20]}… is too large a number")
    return number


def _sentence(error: Any, kind: Any) -> str:
    *parents, last = error["loc"] or [""]
    match error["type"]:
        case "json_invalid":
            return f"not valid JSON: {error['ctx']['error']}"
        case "missing":
            return f"{_path(parents)} lacks the key {last!r}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = _known_keys(kind, parents)
            near = difflib.get_close_matches(str(last), known, n=1)
            hint = f"; it may have {', '.join(known)}" if known else ""
            hint = f"; did you mean {near[0]!r}?" if near else hint
            return f"{_path(parents)} has the unknown key {last!r}{hint}"
        case "value_error":
            where = f"{_path(error['loc'])}: " if error["loc"] else ""
            return f"{where}{error['ctx']['error']}"
    wanted = error["msg"].replace("Input should be", "must be")
    shown = repr(error["input"])
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    return f"{_path(error['loc'])} {wanted}, but it is {shown}"


def _path(location: Any) -> str:
    """The path of a key, such as `panels[0].title`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).lstrip(".") or "the file"


def _known_keys(kind: Any, location: Any) -> list[str]:
    """The keys of the object at a location; none where it lies inside of a dict or a union."""
    try:
        for step in location:
            kind = get_type_hints(kind)[step] if isinstance(step, str) else get_args(kind)[0]
        return list(get_type_hints(kind))
    except (KeyError, TypeError):
        return []
