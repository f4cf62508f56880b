"""`figure.json`: what the analysis of an experiment says, as the report reads it.

`FIGURE` is the contract; docs/report.md explains each key. A file that breaks it is refused with the place and the key,
since a page that quietly leaves something out misleads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from covshift.errors import InputError

NAME = "figure.json"
VERDICTS = ("holds", "does not hold", "not enough data")
STATES = ("holds", "violated", "unordered")
STATUS = ("finished", "diverged")

Figure = dict[str, Any]


class _WrongError(Exception):
    """Where it is wrong, and how."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place} {what}" if place else what)


def _text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise _WrongError(place, f"must be text, but it is {_shown(value)}")


def _text_or_null(value: Any, place: str) -> None:
    if value is not None:
        _text(value, place)


def _number(value: Any, place: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _WrongError(place, f"must be a finite number, but it is {_shown(value)}")


def _picture(value: Any, place: str) -> None:
    if not isinstance(value, str) or not value.startswith("data:image/"):
        raise _WrongError(
            place, f"must begin with data:image/, since the page loads nothing: {_shown(value)}"
        )


def _map(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise _WrongError(place, f"must be an object, but it is {_shown(value)}")


def _one_of(*allowed: str) -> Callable[[Any, str], None]:
    def check(value: Any, place: str) -> None:
        if value not in allowed:
            raise _WrongError(
                place, f"must be one of {', '.join(allowed)}, but it is {_shown(value)}"
            )

    return check


RUN = {
    "name": _text,
    "x": [_number],
    "y": [_number],
    "status": _one_of(*STATUS),
    "config": _map,
}
ARM = {
    "label": _text,
    "x": [_number],
    "middle": [_number],
    "low": [_number],
    "high": [_number],
    "runs": [RUN],
}
PANEL = {
    "title": _text,
    "x": _text,
    "y": _text,
    "arms": [ARM],
    "lines": [{"label": _text, "y": _number}],
}
HISTOGRAM = {"title": _text, "x": _text, "edges": [_number], "counts": [_number], "text": _text}
GALLERY = {"title": _text, "text": _text, "frames": [{"ratio": _number, "uri": _picture}]}
INVARIANT = {
    "run": _text,
    "update": _number,
    "mean_ratio": _number,
    "mean_ratio_pi": _number,
    "state": _one_of(*STATES),
}
FIGURE = {
    "name": _text,
    "alias": _text_or_null,
    "title": _text,
    "claim": _text,
    "paper": _text,
    "found": _text,
    "headline": {"value": _text, "what": _text, "of": _text},
    "verdict": _one_of(*VERDICTS),
    "rule": _text,
    "command": _text,
    "scale": _text,
    "version": _text,
    "hashes": _map,
    "table": {"columns": [_text], "rows": [[_text]]},
    "panels": [PANEL],
    "histograms": [HISTOGRAM],
    "galleries": [GALLERY],
    "invariants": [INVARIANT],
    "differences": [_text],
}


def read_figure(path: Path) -> Figure:
    """The figure of a file.

    Raises:
        InputError: it cannot be read, or breaks the contract: a sentence that names the file, the place and the key.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    check_figure(value, str(path))
    assert isinstance(value, dict)
    return value


def check_figure(value: Any, origin: str) -> None:
    """That the value keeps the contract, and that lists that belong together are of one length.

    Args:
        value: what a figure.json holds.
        origin: of the value, for the message.

    Raises:
        InputError: it does not.

    Example:
        >>> check_figure({"alias": None}, "out/figure.json")
        Traceback (most recent call last):
        covshift.errors.InputError: out/figure.json: the figure lacks the key 'name'
    """
    try:
        _check(value, FIGURE, "")
        for place, lists in _lists_that_match(value):
            lengths = {name: size for name, (size, _) in lists.items()}
            if any(size != wanted for size, wanted in lists.values()):
                raise _WrongError(place, f"has lists of lengths that do not match: {lengths}")
    except _WrongError as wrong:
        raise InputError(f"{origin}: {wrong}") from None


def find_figures(place: Path) -> list[Path]:
    """Every figure.json under a folder, by name."""
    if not place.is_dir():
        raise InputError(f"{place} is no folder")
    return sorted(place.rglob(NAME))


def _check(value: Any, wanted: Any, place: str) -> None:
    if isinstance(wanted, dict):
        _map(value, place or "the figure")
        for key in wanted:
            if key not in value:
                raise _WrongError(place or "the figure", f"lacks the key {key!r}")
        for key in value:
            if key not in wanted:
                raise _WrongError(
                    place or "the figure",
                    f"has the unknown key {key!r}; it may have {', '.join(wanted)}",
                )
            _check(value[key], wanted[key], f"{place}.{key}" if place else key)
    elif isinstance(wanted, list):
        if not isinstance(value, list):
            raise _WrongError(place, f"must be a list, but it is {_shown(value)}")
        for k, item in enumerate(value):
            _check(item, wanted[0], f"{place}[{k}]")
    else:
        wanted(value, place)


def _lists_that_match(figure: Figure) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """For each place, the length of its lists and the length that they must have."""
    columns = len(figure["table"]["columns"])
    for k, row in enumerate(figure["table"]["rows"]):
        yield f"table.rows[{k}]", {"row": (len(row), columns), "columns": (columns, columns)}
    for i, panel in enumerate(figure["panels"]):
        for j, arm in enumerate(panel["arms"]):
            place, size = f"panels[{i}].arms[{j}]", len(arm["x"])
            yield place, {name: (len(arm[name]), size) for name in ("x", "middle", "low", "high")}
            for k, run in enumerate(arm["runs"]):
                sizes = {name: (len(run[name]), len(run["x"])) for name in ("x", "y")}
                yield f"{place}.runs[{k}]", sizes
    for i, histogram in enumerate(figure["histograms"]):
        counts = len(histogram["counts"])
        yield (
            f"histograms[{i}]",
            {"edges": (len(histogram["edges"]), counts + 1), "counts": (counts, counts)},
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
