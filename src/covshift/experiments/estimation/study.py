"""Runs the sweeps, draws the figures, writes the records and the page."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, get_type_hints

from rich.console import Console

from covshift.experiments.estimation.convergence import Point, convergence
from covshift.experiments.estimation.figures import (
    draw_convergence,
    draw_coverage,
    draw_sweep,
    draw_time,
    summarize,
)
from covshift.experiments.estimation.sweep import LEVEL, SCALES, Row, cells, run_cell
from covshift.experiments.exhibits import draw_exhibits
from covshift.experiments.experiment import Outcome, RunOptions, ensure_folder
from covshift.experiments.tables import write_csv
from covshift.files import write_text
from covshift.progress import track
from covshift.report.page import render
from covshift.version import __version__

RecordT = TypeVar("RecordT", Row, Point)


def run(folder: Path, options: RunOptions, console: Console) -> Outcome:
    """Runs everything and writes `estimates.csv`, `convergence.csv`, figures and `index.html`.

    The folder is made if it is missing; files of an earlier study are replaced. Of the options only the scale is used.
    """
    ensure_folder(folder)
    size = SCALES[options.scale]
    jobs = [(cell, seed) for cell in cells(size) for seed in range(size.seeds)]
    rows = [
        row
        for cell, seed in track(console, "datasets", jobs, len(jobs))
        for row in run_cell(cell, size, seed)
    ]
    write_csv(folder / "estimates.csv", [Row._fields, *rows], digits=8)
    points = convergence(size.convergence_sizes, size.convergence_seeds)
    write_csv(folder / "convergence.csv", [Point._fields, *points], digits=8)
    return write_page(folder, options.scale, console)


def write_page(folder: Path, scale: str, console: Console) -> Outcome:
    """Writes the page and the figures again, from the CSV files in the folder alone."""
    rows = list(read_records(folder / "estimates.csv", Row))
    points = list(read_records(folder / "convergence.csv", Point))
    summaries = summarize(rows)
    middle = SCALES[scale].middle
    exhibits = draw_exhibits(
        console,
        [
            partial(draw_convergence, points),
            *(partial(draw_sweep, rows, s, middle) for s in ("size", "distance", "ratio_discount")),
            partial(draw_coverage, summaries),
            partial(draw_time, summaries),
        ],
    )
    (folder / "figures").mkdir(exist_ok=True)
    for exhibit in exhibits:
        write_text(folder / "figures" / f"{exhibit['name']}.svg", exhibit["svg"])
    domains = dict.fromkeys(summary.domain for summary in summaries)
    page = render(
        "estimation.html.j2",
        exhibits=exhibits,
        groups={name: [s for s in summaries if s.domain == name] for name in domains},
        count=len(rows),
        failed=sum(bool(row.failure) for row in rows),
        level=f"{LEVEL:.0%}",
        command=f"covshift reproduce estimation --scale {scale} --out DIR",
        version=__version__,
    )
    write_text(folder / "index.html", page)
    return Outcome(folder / "index.html")


def read_records(path: Path, kind: type[RecordT]) -> Iterator[RecordT]:
    """The records of a CSV file, with each field of the type that its annotation says."""
    types = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            yield kind(*(types[name](record[name]) for name in kind._fields))
