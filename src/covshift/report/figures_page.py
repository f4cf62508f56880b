"""The page of figures: a summary first, then each claim with what these runs show of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from covshift.records import RunFolder
from covshift.report.charts import draw_curves, draw_histogram, say
from covshift.report.figure_file import Figure, check_figure
from covshift.report.page import render
from covshift.report.plain_runs import describe_runs
from covshift.version import __version__


def render_report(figures: Sequence[Figure], runs: Sequence[RunFolder] = ()) -> str:
    """One HTML file that loads nothing: figures, and runs that no figure names.

    Args:
        figures: contents of figure.json files.
        runs: without a figure; they get a section of their own.

    Raises:
        InputError: a figure breaks the contract.
    """
    for figure in figures:
        check_figure(figure, f"the figure {figure.get('name', '')!r}")
    shown = [
        figure
        | {
            "curves": _curves(figure["panels"]),
            "bars": _bars(figure["histograms"]),
            "broken": _broken(figure["invariants"]),
            "ended": _diverged(figure["panels"]),
            "configuration": _configuration(figure["panels"]),
        }
        for figure in figures
    ]
    plain = describe_runs(runs)
    return render(
        "report.html.j2",
        figures=shown,
        plain=plain
        and plain
        | {
            "curves": _curves(plain["panels"]),
            "broken": _broken(plain["invariants"]),
        },
        version=__version__,
    )


def _curves(panels: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    labels = list(dict.fromkeys(arm["label"] for panel in panels for arm in panel["arms"]))
    return [
        {"title": panel["title"], "text": ""} | draw_curves(panel, labels)._asdict()
        for panel in panels
    ]


def _bars(histograms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"title": histogram["title"], "text": histogram["text"]}
        | draw_histogram(histogram)._asdict()
        for histogram in histograms
    ]


def _broken(invariants: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs that break an invariant by state, with the evaluation whose E_μ[c] is farthest from 1, or lowest E_π[c] - E_μ[c]."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in invariants:
        if row["state"] != "holds":
            groups.setdefault((row["run"], row["state"]), []).append(row)
    broken = []
    for (run, state), rows in groups.items():
        if state == "violated":
            worst = max(rows, key=lambda row: abs(math.log(max(row["mean_ratio"], 1e-12))))
        else:
            worst = min(rows, key=lambda row: float(row["mean_ratio_pi"] - row["mean_ratio"]))
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


def _diverged(panels: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Each run that diverged, once, and where its curve ends."""
    ended: dict[str, dict[str, str]] = {}
    for panel in panels:
        for arm in panel["arms"]:
            for run in arm["runs"]:
                if run["status"] == "diverged":
                    end = (
                        f"last measured at {say(run['x'][-1])} {panel['x']}"
                        if run["x"]
                        else "before it was first measured"
                    )
                    ended.setdefault(
                        run["name"], {"run": run["name"], "arm": arm["label"], "end": end}
                    )
    return list(ended.values())


def _configuration(panels: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What all runs have in common, and a row a run of what differs."""
    configs = {
        run["name"]: run["config"]
        for panel in panels
        for arm in panel["arms"]
        for run in arm["runs"]
    }
    leaves = list(dict.fromkeys(leaf for config in configs.values() for leaf in config))
    values = {
        leaf: [_leaf(config[leaf]) if leaf in config else "" for config in configs.values()]
        for leaf in leaves
    }
    common = {leaf: said[0] for leaf, said in values.items() if len(set(said)) == 1}
    differing = [leaf for leaf in leaves if leaf not in common]
    rows = [[name, *(values[leaf][k] for leaf in differing)] for k, name in enumerate(configs)]
    return {"common": common, "differing": differing, "rows": rows if differing else []}


def _leaf(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
