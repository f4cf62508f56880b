"""What a report is made of, found under folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from covshift.errors import InputError
from covshift.files import write_text
from covshift.records import RunFolder, find_runs
from covshift.report.figure_file import Figure, find_figures, read_figure
from covshift.report.figures_page import render_report


class Sources(NamedTuple):
    """Figures, and runs that no figure shows."""

    figures: list[Figure]
    runs: list[RunFolder]


def find_sources(paths: Iterable[Path]) -> Sources:
    """Every figure, in the paper's order, and every run that no figure shows.

    A figure shows the runs that it names, of those under the same path, and the runs that lie in its own folder.

    Args:
        paths: folders; what lies under two of them is taken once.

    Raises:
        InputError: a path is no folder, a figure.json breaks the contract, or there is nothing to report.
    """
    paths = list(paths)
    figures: dict[Path, Figure] = {}
    runs: dict[Path, RunFolder] = {}
    shown: set[Path] = set()
    for path in paths:
        named: set[str] = set()
        homes: set[Path] = set()
        for file in find_figures(path):
            figure = figures.setdefault(file.resolve(), read_figure(file))
            named |= _run_names(figure)
            homes.add(file.resolve().parent)
        for run in find_runs(path):
            place = run.path.resolve()
            runs.setdefault(place, run)
            if run.path.name in named or homes & set(place.parents):
                shown.add(place)
    if not figures and not runs:
        where = ", ".join(map(str, paths))
        raise InputError(f"there is neither a figure.json nor a run under {where}")
    ordered = sorted(figures.values(), key=lambda figure: (figure["alias"] or "~", figure["name"]))
    plain = [run for place, run in runs.items() if place not in shown]
    return Sources(ordered, plain)


def write_report(figures: Sequence[Figure], runs: Sequence[RunFolder], out: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        InputError: the page's name does not end in .html.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"the page must end in .html, but it is {out}")
    page = render_report(figures, runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page)


def _run_names(figure: Figure) -> set[str]:
    named = {
        run["name"] for panel in figure["panels"] for arm in panel["arms"] for run in arm["runs"]
    }
    return named | {row["run"] for row in figure["invariants"]}
