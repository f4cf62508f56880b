"""Runs that no figure shows, as the report shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from covshift.config.training import TrainConfig
from covshift.errors import InputError
from covshift.records import Row, RunFolder, Status, support_warning
from covshift.report.charts import say
from covshift.report.statistics import Curve, curve_band

_SHOWN = {
    "score": "score",
    "mean_ratio": "mean c over the data",
    "exact_mean_ratio": "exact mean c, by episodes of π",
    "calibration_error": "largest relative error of c against episodes of π",
    "mean_ratio_pi": "mean c in episodes of π",
}
"""Columns of metrics.csv that are drawn, with the label of their axis."""


def describe_runs(runs: Sequence[RunFolder]) -> dict[str, Any] | None:
    """A table of runs, their learning curves by environment, and the invariants of their ratios.

    Runs that differ in their seed only are one arm. A run that cannot be read is in the table, with the reason.

    Returns:
        None if there are no runs.
    """
    if not runs:
        return None
    read, unreadable = [], []
    for run in runs:
        try:
            read.append((run, run.config(), _rows(run), run.status()))
        except InputError as error:
            unreadable.append(_unreadable(run, str(error)))
    labels = _labels([config for _, config, _, _ in read])
    panels = []
    for env in dict.fromkeys(config.env for _, config, _, _ in read):
        for column, title in _SHOWN.items():
            arms: dict[str, list[dict[str, Any]]] = {}
            for (run, config, rows, status), label in zip(read, labels, strict=True):
                if config.env == env and any(column in row for row in rows):
                    arms.setdefault(label, []).append(_curve(run, config, rows, status, column))
            if arms:
                panels.append(
                    {
                        "title": env,
                        "x": "updates",
                        "y": title,
                        "arms": [_arm(label, curves) for label, curves in arms.items()],
                        "lines": [],
                    }
                )
    return {
        "panels": panels,
        "table": [_line(*entry, label) for entry, label in zip(read, labels, strict=True)]
        + unreadable,
        "invariants": [
            {"run": str(run.path), "state": row["invariant"]}
            | {name: row[name] for name in ("update", "mean_ratio", "mean_ratio_pi")}
            for run, _, rows, _ in read
            for row in rows
            if "invariant" in row
        ],
    }


def _rows(run: RunFolder) -> list[Row]:
    return run.metrics() if run.metrics_path.is_file() else []


def _labels(configs: Sequence[TrainConfig]) -> list[str]:
    """A label per run: its preset, its scale if there are several, and the settings in which it differs from others.

    Runs are compared that share environment, preset and scale.
    """
    several = len({config.scale for config in configs}) > 1
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for config in configs:
        groups.setdefault((config.env, config.preset, config.scale), []).append(config.leaves())
    labels = []
    for config in configs:
        peers, own = groups[config.env, config.preset, config.scale], config.leaves()
        differing = [
            f"{name} {value}"
            for name, value in own.items()
            if name != "seed" and any(peer[name] != value for peer in peers)
        ]
        scale = [f"scale {config.scale}"] if several else []
        labels.append(", ".join([config.preset, *scale, *differing]))
    return labels


def _curve(
    run: RunFolder, config: TrainConfig, rows: list[Row], status: Status, column: str
) -> dict[str, Any]:
    points = [(float(row["update"]), float(row[column])) for row in rows if column in row]
    points = [(x, y) for x, y in points if math.isfinite(y)]
    diverged = status["status"] == "diverged"
    return {
        "name": str(run.path),
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "status": "diverged" if diverged else "finished",
        "config": {"seed": config.seed},
    }


def _arm(label: str, curves: list[dict[str, Any]]) -> dict[str, Any]:
    band = curve_band([Curve(curve["x"], curve["y"]) for curve in curves], np.random.default_rng(0))
    numbers = {name: getattr(band, name).tolist() for name in ("x", "middle", "low", "high")}
    return {"label": label, "runs": curves} | numbers


def _unreadable(run: RunFolder, reason: str) -> dict[str, str]:
    empty = dict.fromkeys(("env", "arm", "seed", "updates", "score"), "")
    return empty | {"run": str(run.path), "status": "unreadable", "reason": reason}


def _line(
    run: RunFolder, config: TrainConfig, rows: list[Row], status: Status, label: str
) -> dict[str, str]:
    scores = [float(row["score"]) for row in rows if "score" in row]
    return {
        "run": str(run.path),
        "env": config.env,
        "arm": label,
        "seed": str(config.seed),
        "status": str(status["status"]),
        "updates": f"{status['update']:,} of {config.optimization.num_updates:,}",
        "score": say(scores[-1]) if scores else "",
        "reason": str(status.get("reason", "")) or support_warning(rows),
    }
