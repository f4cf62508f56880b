"""`figure.json`: what the analysis of an experiment found, as the report reads it.

`Figure` is the contract; docs/report.md explains each key. A file that breaks it is refused with the path of the key,
since a page that silently leaves something out misleads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator
from typing_extensions import TypedDict

from covshift.errors import InputError
from covshift.schema import read_json

NAME = "figure.json"

Object = TypeVar("Object")


def _check_equal_lengths(*names: str) -> AfterValidator:
    def check(value: Object) -> Object:
        lengths = {name: len(value[name]) for name in names}  # type: ignore[index]
        if len(set(lengths.values())) > 1:
            raise ValueError(f"these lists must be of one length, but they have {lengths}")
        return value

    return AfterValidator(check)


def _check_table(table: Table) -> Table:
    columns = len(table["columns"])
    for k, row in enumerate(table["rows"]):
        if len(row) != columns:
            raise ValueError(f"rows[{k}] has {len(row)} cells, but there are {columns} columns")
    return table


def _check_histogram(histogram: Histogram) -> Histogram:
    edges, counts = len(histogram["edges"]), len(histogram["counts"])
    if edges != counts + 1:
        raise ValueError(f"{counts} counts need {counts + 1} edges, but there are {edges}")
    return histogram


def _check_picture(uri: str) -> str:
    if not re.fullmatch(r"data:image/(png|jpeg|gif);base64,[A-Za-z0-9+/=]+", uri):
        raise ValueError(
            "a picture must begin with data:image/png;base64, since the page loads nothing, "
            f"but it is {uri[:60]!r}"
        )
    return uri


class Run(TypedDict):
    """A run's curve; `config` holds the leaves of its configuration."""

    name: str
    x: list[float]
    y: list[float]
    status: Literal["finished", "diverged"]
    config: dict[str, Any]


class Arm(TypedDict):
    """Runs that differ in their seed only; `middle` is their interquartile mean, `low` to `high` its interval."""

    label: str
    x: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    runs: list[Annotated[Run, _check_equal_lengths("x", "y")]]


class Line(TypedDict):
    """A level to compare curves with."""

    label: str
    y: float


class Panel(TypedDict):
    """Curves over common axes, which `x` and `y` name."""

    title: str
    x: str
    y: str
    arms: list[Annotated[Arm, _check_equal_lengths("x", "middle", "low", "high")]]
    lines: list[Line]


class Histogram(TypedDict):
    """Counts between edges."""

    title: str
    x: str
    edges: list[float]
    counts: list[float]
    text: str


class Frame(TypedDict):
    """A state of the data as a picture, with its ratio."""

    ratio: float
    uri: Annotated[str, AfterValidator(_check_picture)]


class Gallery(TypedDict):
    """States side by side."""

    title: str
    text: str
    frames: list[Frame]


class Invariant(TypedDict):
    """What one evaluation of a run says about the invariants of its ratio."""

    run: str
    update: float
    mean_ratio: float
    mean_ratio_pi: float
    state: Literal["holds", "violated", "unordered"]


class Headline(TypedDict):
    """The number that decides the verdict."""

    value: str
    what: str
    of: str


class Table(TypedDict):
    """Cells as text."""

    columns: list[str]
    rows: list[list[str]]


class Figure(TypedDict):
    """All that a report shows of an experiment."""

    name: str
    alias: str | None
    title: str
    claim: str
    paper: str
    found: str
    headline: Headline
    verdict: Literal["holds", "does not hold", "not enough data"]
    rule: str
    command: str
    scale: str
    version: str
    hashes: dict[str, str]
    table: Annotated[Table, AfterValidator(_check_table)]
    panels: list[Panel]
    histograms: list[Annotated[Histogram, AfterValidator(_check_histogram)]]
    galleries: list[Gallery]
    invariants: list[Invariant]
    differences: list[str]


def read_figure(path: Path) -> Figure:
    """The figure in a file.

    Raises:
        InputError: the file cannot be read or breaks the contract; the message names the file and the key.
    """
    return read_json(path, Figure)


def find_figures(folder: Path) -> list[Path]:
    """Every figure.json under a folder, sorted by path."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    return sorted(folder.rglob(NAME))
