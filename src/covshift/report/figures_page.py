"""The page of `covshift report`: a summary first, then each claim with what these runs show about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from covshift.errors import InputError
from covshift.files import check_folder, write_text
from covshift.records import RunFolder, find_runs
from covshift.report.charts import NARROW, WIDE, draw_curves, draw_histogram, say
from covshift.report.drawing import arm_labels
from covshift.report.figure_file import Figure, Invariant, Panel, Run, find_figures, read_figure
from covshift.report.page import render
from covshift.report.plain_runs import describe_runs
from covshift.version import __version__

SMOKE = (
    "SMOKE TEST: these runs are far too short to learn anything. They show that everything works; their numbers mean "
    "nothing."
)
"""What pages and the terminal say about results at the scale `smoke`."""


class Sources(NamedTuple):
    """Figures, runs that no figure shows, and why each of the other figures cannot be read."""

    figures: list[Figure]
    runs: list[RunFolder]
    unreadable: list[str]


def find_sources(paths: Iterable[Path]) -> Sources:
    """Every figure, in the paper's order, and every run that no figure shows.

    A figure shows the runs that it names, of those under the same path, and the runs in its own folder. One that cannot
    be read shows none.

    Args:
        paths: folders; what lies under two of them is taken once.

    Raises:
        InputError: a path is not a folder, or there is nothing to report.
    """
    paths = list(paths)
    figures: dict[Path, Figure] = {}
    unreadable: dict[Path, str] = {}
    runs: dict[Path, RunFolder] = {}
    shown: set[Path] = set()
    for path in paths:
        named: set[str] = set()
        homes: set[Path] = set()
        for file in find_figures(path):
            try:
                figure = figures.setdefault(file.resolve(), read_figure(file))
            except InputError as error:
                unreadable.setdefault(file.resolve(), str(error))
                continue
            named |= {run["name"] for _, _, run in _runs(figure["panels"])}
            named |= {row["run"] for row in figure["invariants"]}
            homes.add(file.resolve().parent)
        for run in find_runs(path):
            folder = run.path.resolve()
            runs.setdefault(folder, run)
            if run.path.name in named or homes & set(folder.parents):
                shown.add(folder)
    if not figures and not runs and not unreadable:
        where = ", ".join(map(str, paths))
        raise InputError(f"there is neither a figure.json nor a run under {where}")
    ordered = sorted(figures.values(), key=lambda figure: (figure["alias"] or "~", figure["name"]))
    plain = [run for folder, run in runs.items() if folder not in shown]
    return Sources(ordered, plain, list(unreadable.values()))


def write_report(sources: Sources, out: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        InputError: the page's name does not end in .html.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"the page must end in .html, but it is {out}")
    page = render_report(*sources)
    check_folder(out.parent)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page)


def render_report(
    figures: Sequence[Figure], runs: Sequence[RunFolder] = (), unreadable: Sequence[str] = ()
) -> str:
    """One HTML file that loads nothing.

    Args:
        figures: contents of figure.json files.
        runs: runs that no figure shows; they get a section of their own.
        unreadable: why other figures cannot be shown, each with the path of its file.
    """
    plain = describe_runs(runs)
    return render(
        "report.html.j2",
        figures=[
            {
                **figure,
                **_described(figure),
                "bars": [
                    {"title": histogram["title"], "text": histogram["text"], "size": ""}
                    | draw_histogram(histogram)._asdict()
                    for histogram in figure["histograms"]
                ],
                "diverged": _diverged(figure["panels"]),
                "configuration": _configuration(figure["panels"]),
            }
            for figure in figures
        ],
        plain=plain and plain | _described(plain),
        unreadable=unreadable,
        smoke=SMOKE,
        version=__version__,
    )


def _described(source: Mapping[str, Any]) -> dict[str, Any]:
    """The curves and broken invariants of a figure or of plain runs."""
    labels = arm_labels(source["panels"])
    # A lone panel has the width of the page, except on a phone.
    sizes = {"wide": WIDE, "narrow": NARROW} if len(source["panels"]) == 1 else {"": NARROW}
    return {
        "curves": [
            {"title": panel["title"], "text": "", "size": name}
            | draw_curves(panel, labels, size)._asdict()
            for panel in source["panels"]
            for name, size in sizes.items()
        ],
        "broken": _broken(source["invariants"]),
    }


def _broken(invariants: Sequence[Invariant]) -> list[dict[str, Any]]:
    """A row per run and broken invariant, with its worst evaluation.

    The worst violation is the one whose E_μ[c] is farthest from 1; the worst wrong order has the lowest
    E_π[c] - E_μ[c].
    """
    groups: dict[tuple[str, str], list[Invariant]] = {}
    for row in invariants:
        if row["state"] != "holds":
            groups.setdefault((row["run"], row["state"]), []).append(row)
    broken = []
    for (run, state), rows in groups.items():
        if state == "violated":
            worst = max(rows, key=lambda row: abs(math.log(max(row["mean_ratio"], 1e-12))))
        else:
            worst = min(rows, key=lambda row: row["mean_ratio_pi"] - row["mean_ratio"])
        broken.append(
            {
                "run": run,
                "state": state,
                "times": len(rows),
                "of": sum(row["run"] == run for row in invariants),
                "update": say(worst["update"]),
                "mean_ratio": say(worst["mean_ratio"]),
                "mean_ratio_pi": say(worst["mean_ratio_pi"]),
            }
        )
    return sorted(broken, key=lambda row: row["state"] != "violated")


def _diverged(panels: Sequence[Panel]) -> list[dict[str, str]]:
    """Each run that diverged, once, and where its curve ends."""
    ends: dict[str, dict[str, str]] = {}
    for panel, arm, run in _runs(panels):
        if run["status"] == "diverged":
            end = "before it was first measured"
            if run["x"]:
                end = f"last measured at {say(run['x'][-1])} {panel['x']}"
            ends.setdefault(run["name"], {"run": run["name"], "arm": arm, "end": end})
    return list(ends.values())


def _configuration(panels: Sequence[Panel]) -> dict[str, Any]:
    """The settings that all runs share, and a row per run of those that differ."""
    configs = {run["name"]: run["config"] for _, _, run in _runs(panels)}
    leaves = list(dict.fromkeys(leaf for config in configs.values() for leaf in config))
    values = {
        leaf: [_leaf(config[leaf]) if leaf in config else "" for config in configs.values()]
        for leaf in leaves
    }
    common = {leaf: texts[0] for leaf, texts in values.items() if len(set(texts)) == 1}
    differing = [leaf for leaf in leaves if leaf not in common]
    rows = [[name, *(values[leaf][k] for leaf in differing)] for k, name in enumerate(configs)]
    return {"common": common, "differing": differing, "rows": rows if differing else []}


def _leaf(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _runs(panels: Iterable[Panel]) -> Iterator[tuple[Panel, str, Run]]:
    """Each run with its panel and its arm's label."""
    return (
        (panel, arm["label"], run)
        for panel in panels
        for arm in panel["arms"]
        for run in arm["runs"]
    )
