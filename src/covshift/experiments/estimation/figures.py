"""The figures of the study, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from covshift.estimation.estimators import ESTIMATORS
from covshift.experiments.estimation.convergence import Point
from covshift.experiments.estimation.sweep import DISTANCE, LEVEL, VARIANTS, Row
from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import COLORS, panels

ORDER = [variant.title for variant in VARIANTS]
MARKERS = "osD^vP"


class Summary(NamedTuple):
    """How one variant did in one domain.

    Attributes:
        green: share of the estimates whose flag is `ok`.
        green_coverage: coverage among these; NaN if there is none.
    """

    domain: str
    variant: str
    error: float
    coverage: float
    green: float
    green_coverage: float
    milliseconds: float
    failures: int
    runs: int


def draw_convergence(points: Sequence[Point]) -> Exhibit:
    """Errors against N on two logarithmic axes."""
    figure, axes = panels(2, height=4.6)
    for panel, kind, title in zip(
        axes, ("ratio", "value"), ("Ratios, γ̂ = 0.9", "Values, γ = 0.9"), strict=True
    ):
        names = list(dict.fromkeys(point.name for point in points if point.kind == kind))
        for index, name in enumerate(names):
            mine = [p for p in points if (p.kind, p.name) == (kind, name)]
            label = name if kind == "ratio" else ESTIMATORS[name].title
            x, y = [p.transitions for p in mine], [p.error for p in mine]
            panel.loglog(x, y, label=label, **_style(index))
        first = [p for p in points if p.kind == kind]
        sizes = np.array(sorted({p.transitions for p in first}), dtype=float)
        level = float(np.median([p.error for p in first if p.transitions == sizes[0]]))
        panel.loglog(sizes, 2 * level * np.sqrt(sizes[0] / sizes), ":", color="0.4", label="1/√N")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set(xlabel="transitions", ylabel="median error", title=title)
        columns = 2 if kind == "ratio" else 3
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns)
    return Exhibit(
        "convergence",
        "Does every estimator converge to the exact answer, and how fast?",
        "A random episodic problem with 5 states and whole episodes; the dotted line falls as 1/√N. COP-TD "
        "with decreasing steps and the trajectory-wise importance weights lag behind; all others run parallel "
        "to the line. On a table, fitted Q and the DICE family give the same number.",
        figure,
    )


def draw_sweep(rows: Sequence[Row], sweep: str, middle: int) -> Exhibit:
    """Median error of every variant in every domain, against what the sweep varies."""
    mine = [
        row
        for row in rows
        if row.sweep == sweep
        or (sweep == "distance" and row.sweep == "size" and row.transitions == middle)
    ]
    names = list(dict.fromkeys(row.domain for row in mine))
    # One panel more than domains, for the legend.
    columns = 4 if len(names) == 3 else 3
    lines = -(-(len(names) + 1) // columns)
    figure = Figure(figsize=(10, 3.3 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, domain in zip(grid, names, strict=False):
        _lines(panel, [row for row in mine if row.domain == domain], sweep)
        panel.set_title(domain)
    handles: dict[str, Any] = {}
    for panel in grid[: len(names)]:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    for panel in grid[len(names) :]:
        panel.set_axis_off()
    grid[-1].legend(
        [handles[name] for name in ORDER if name in handles],
        [name for name in ORDER if name in handles],
        loc="center",
        fontsize=8,
    )
    text = {
        "size": (
            "How much data does an answer take?",
            f"Discounted value, π at distance {DISTANCE:g} from μ. Error over what is at stake, "
            "|J(π*) - J(μ)|: at 1 one cannot tell the two policies apart. Medians over datasets.",
        ),
        "distance": (
            "How far may the new policy be from the logged one?",
            f"Discounted value from {middle:,} transitions; π = (1 - distance) μ + distance π*. Products of ρ "
            "fail first; ratios and fitted values depend on the features and on what the data cover. A policy near μ "
            "still takes actions that a small dataset lacks (Taxi): models from counts ignore them and are biased, "
            "weights on logged actions are not.",
        ),
        "ratio_discount": (
            "What does γ̂ buy?",
            f"Average reward from {middle:,} transitions. A small γ̂ pulls a ratio's estimate towards the "
            "behavior policy's value (bias), a large one needs more data (variance). A fitted Q beside the ratio "
            "removes the bias, so that the doubly robust estimate hardly depends on γ̂.",
        ),
    }[sweep]
    return Exhibit(sweep, *text, figure)


def draw_coverage(summaries: Sequence[Summary]) -> Exhibit:
    """How often the interval contains the true value, by variant and domain."""
    names = list(dict.fromkeys(summary.domain for summary in summaries))
    figure = Figure(figsize=(10, 4.8), layout="constrained")
    panel = figure.subplots()
    table = np.full((len(ORDER), len(names)), np.nan)
    for summary in summaries:
        table[ORDER.index(summary.variant), names.index(summary.domain)] = summary.coverage
    shown = ~np.isnan(table).all(axis=1)
    image = panel.imshow(table[shown], vmin=0, vmax=1, cmap="RdYlBu", aspect="auto")
    for y, x in np.argwhere(~np.isnan(table[shown])):
        value = table[shown][y, x]
        color = "white" if value < 0.15 or value > 0.93 else "black"
        panel.text(x, y, f"{value:.0%}", ha="center", va="center", fontsize=8, color=color)
    panel.set_xticks(range(len(names)), names)
    panel.set_yticks(range(int(shown.sum())), [n for n, s in zip(ORDER, shown, strict=True) if s])
    panel.grid(visible=False)
    figure.colorbar(image, label="share of intervals that contain the true value")
    return Exhibit(
        "coverage",
        "Can the intervals be believed?",
        f"Nominal {LEVEL:.0%}, Bayesian bootstrap over trajectories, discounted value, all sizes and distances. An "
        "interval says how an estimate varies with the data. It misses the true value if the estimator is biased: "
        "features that cannot express Q or the ratio, actions that were never logged, cut records, or large products of "
        "ρ that do not occur in so few trajectories. The row of the behavior policy estimates the value of another policy "
        "and is right only if π is near μ.",
        figure,
    )


def draw_time(summaries: Sequence[Summary]) -> Exhibit:
    """Milliseconds per estimate, without its interval."""
    figure, (panel,) = panels(1, height=3.8)
    names = list(dict.fromkeys(summary.domain for summary in summaries))
    for index, domain in enumerate(names):
        mine = {s.variant: s.milliseconds for s in summaries if s.domain == domain}
        x = [ORDER.index(variant) for variant in mine]
        panel.semilogy(x, list(mine.values()), MARKERS[index], color=COLORS[index], label=domain)
    panel.set_xticks(range(len(ORDER)), ORDER, rotation=35, ha="right")
    panel.set_ylabel("milliseconds per estimate")
    panel.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    return Exhibit(
        "time",
        "How long does an answer take?",
        "Median over all cells of the discounted value, one core, without the interval. Counts and moments are "
        "sums over the data; DICE solves dense systems of all state-action pairs seen.",
        figure,
    )


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """One summary per domain and variant, over the cells of the discounted value."""
    mine = [row for row in rows if row.objective == "discounted"]
    made = []
    for domain in dict.fromkeys(row.domain for row in mine):
        for variant in ORDER:
            here = [row for row in mine if (row.domain, row.variant) == (domain, variant)]
            good = [row for row in here if not row.failure]
            if not good:
                continue
            covered = [row.low <= row.truth <= row.high for row in good]
            green = [held for row, held in zip(good, covered, strict=True) if row.flag == "ok"]
            made.append(
                Summary(
                    domain,
                    variant,
                    float(np.median([row.error for row in good])),
                    float(np.mean(covered)),
                    len(green) / len(good),
                    float(np.mean(green)) if green else float("nan"),
                    1000 * float(np.median([row.seconds for row in good])),
                    len(here) - len(good),
                    len(here),
                )
            )
    return made


def _lines(panel: Axes, rows: Sequence[Row], sweep: str) -> None:
    column = "transitions" if sweep == "size" else sweep
    for variant in ORDER:
        here = [row for row in rows if row.variant == variant and not row.failure]
        values = sorted({getattr(row, column) for row in here})
        if not values:
            continue
        median = [np.median([r.error for r in here if getattr(r, column) == v]) for v in values]
        x = [1.0 / max(1.0 - v, 1e-3) for v in values] if sweep == "ratio_discount" else values
        panel.plot(x, np.maximum(median, 1e-4), label=variant, **_style(ORDER.index(variant)))
    panel.set_yscale("log")
    panel.yaxis.set_minor_formatter(NullFormatter())
    if sweep != "distance":
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(NullFormatter())
    if sweep == "size":
        sizes = sorted({row.transitions for row in rows})
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    label = {
        "size": "transitions",
        "distance": "distance from μ (0) to π* (1)",
        "ratio_discount": "horizon 1/(1 - γ̂), 1000 is γ̂ = 1",
    }[sweep]
    panel.set(xlabel=label, ylabel="error / stake")


def _style(index: int) -> dict[str, Any]:
    dashes = ("-", "--", ":")[index // len(COLORS)]
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": dashes,
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 3.5,
    }
