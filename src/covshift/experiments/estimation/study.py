"""The study: runs the sweep, draws the figures, writes the records and the page."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from rich.console import Console

from covshift.errors import InputError
from covshift.experiments.estimation.convergence import Point, convergence
from covshift.experiments.estimation.figures import (
    Exhibit,
    Summary,
    draw_convergence,
    draw_coverage,
    draw_sweep,
    draw_time,
    summarize,
)
from covshift.experiments.estimation.sweep import LEVEL, SCALES, Row, Scale, cells, run_cell
from covshift.files import whole_file, write_text
from covshift.progress import track
from covshift.report.page import render
from covshift.report.plots import house_style, to_svg
from covshift.version import __version__

SIZES = {"smoke": ((100, 1_000), 3), "small": ((100, 1_000, 10_000, 100_000), 10)}
"""Transitions and seeds of the convergence figure, by scale."""


class Outcome(NamedTuple):
    """What a study came to."""

    rows: list[Row]
    points: list[Point]
    page: Path


def run(out: Path, *, scale: str = "small", console: Console) -> Outcome:
    """Runs everything and writes `estimates.csv`, `convergence.csv`, figures and `index.html` into `out`.

    Args:
        out: folder, made where it is missing; files of an earlier study are replaced.
        scale: `smoke` or `small`.
        console: for the progress bars.
    """
    if scale not in SCALES:
        raise InputError(f"scale must be {' or '.join(SCALES)}, but it is {scale}")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    size = SCALES[scale]
    jobs = [(cell, seed) for cell in cells(size) for seed in range(size.seeds)]
    rows = [
        row
        for cell, seed in track(console, "datasets", jobs, len(jobs))
        for row in run_cell(cell, size, seed)
    ]
    _write_csv(out / "estimates.csv", Row._fields, rows)
    _write_csv(out / "convergence.csv", Point._fields, list(convergence(*SIZES[scale])))
    return write_page(out, scale=scale)


def write_page(out: Path, *, scale: str) -> Outcome:
    """The page anew, from the records in `out` alone."""
    rows = [Row(*record) for record in _read_csv(out / "estimates.csv", Row)]
    points = [Point(*record) for record in _read_csv(out / "convergence.csv", Point)]
    summaries = summarize(rows)
    exhibits = list(_exhibits(rows, points, summaries, SCALES[scale]))
    (out / "figures").mkdir(exist_ok=True)
    for exhibit in exhibits:
        write_text(out / "figures" / f"{exhibit['name']}.svg", exhibit["svg"])
    page = render(
        "estimation.html.j2",
        exhibits=exhibits,
        groups=_groups(summaries),
        count=len(rows),
        failed=sum(bool(row.failure) for row in rows),
        level=f"{LEVEL:.0%}",
        command=f"covshift reproduce estimation --scale {scale} --out DIR",
        version=__version__,
    )
    write_text(out / "index.html", page)
    return Outcome(rows, points, out / "index.html")


def _exhibits(
    rows: Sequence[Row], points: Sequence[Point], summaries: Sequence[Summary], scale: Scale
) -> Iterator[dict[str, Any]]:
    draws: list[Callable[[], Exhibit]] = [
        lambda: draw_convergence(points),
        lambda: draw_sweep(rows, "size", scale.middle),
        lambda: draw_sweep(rows, "distance", scale.middle),
        lambda: draw_sweep(rows, "ratio_discount", scale.middle),
        lambda: draw_coverage(summaries),
        lambda: draw_time(summaries),
    ]
    for draw in draws:
        with house_style():
            exhibit = draw()
            yield exhibit._asdict() | {"svg": to_svg(exhibit.figure, exhibit.title)}


def _groups(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    names = dict.fromkeys(summary.domain for summary in summaries)
    return {name: [s for s in summaries if s.domain == name] for name in names}


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with whole_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in rows:
            writer.writerow([f"{v:.8g}" if isinstance(v, float) else v for v in row])


def _read_csv(path: Path, kind: type[Row] | type[Point]) -> Iterator[list[Any]]:
    """Records with each field as its annotation says."""
    types = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            yield [types[name](record[name]) for name in kind._fields]
