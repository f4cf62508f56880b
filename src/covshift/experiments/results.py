"""The finished runs of an experiment, and what most figures make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.store import Store
from covshift.experiments.experiment import Arm, Experiment
from covshift.records import RunFolder, invariant
from covshift.report.statistics import (
    Curve,
    Estimate,
    bootstrap_estimate,
    curve_band,
    improvement_estimate,
    interquartile_mean,
)

LAST = 3
"""Values that the end of a run is the mean of: evaluations of a score, rows of a ratio."""

FEWEST_SEEDS = 3
"""Fewer say nothing."""

SEED = 0
"""Of every bootstrap."""


@final
@dataclass(frozen=True, eq=False)
class Results:
    """Runs by game, arm and seed, with the data that they learned from.

    Attributes:
        experiment: what was run.
        scale: its size.
        runs: folders.
        data: datasets by game.
    """

    experiment: Experiment
    scale: str
    runs: dict[tuple[str, str, int], RunFolder]
    data: dict[str, Path]

    @property
    def games(self) -> list[str]:
        """Environments."""
        return list(self.experiment.games[self.scale])

    @property
    def seeds(self) -> int:
        """Runs of each arm in each game."""
        return len({seed for _, _, seed in self.runs})

    @property
    def arms(self) -> list[Arm]:
        """Arms of the figure."""
        return list(self.experiment.arms[self.scale])

    def of(self, game: str, label: str) -> list[RunFolder]:
        """The runs of an arm in a game, a seed each."""
        return [run for (g, a, _), run in self.runs.items() if (g, a) == (game, label)]

    def scores(self, label: str) -> NDArray[np.float64]:
        """Final scores of an arm, seeds × games.

        Of a run that diverged it is the mean of the last evaluations that it came to. Rounded, so that equal scores are
        ties in whatever order they were added.
        """
        return np.array([self.endings(game, label, "score") for game in self.games]).T.round(9)

    def endings(self, game: str, label: str, column: str) -> NDArray[np.float64]:
        """The mean of the last values of a column of the metrics, a number for each run of an arm in a game."""
        return np.array([_ending(run, column) for run in self.of(game, label)])

    def random_score(self, game: str) -> float:
        """What the behavior policy scored in the data."""
        column = Store.open(self.data[game]).columns
        return float(column["reward"].sum() / column["is_initial"].sum())

    def improvement(self, label: str, baseline: str) -> Estimate:
        """P(arm > baseline) over seeds and games, with its 95 % interval."""
        return _improvement(self.scores(label), self.scores(baseline))

    def improvement_by_game(self, label: str, baseline: str) -> dict[str, Estimate]:
        """P(arm > baseline) over seeds, in each game."""
        scores = zip(self.games, self.scores(label).T, self.scores(baseline).T, strict=True)
        return {game: _improvement(ours, theirs) for game, ours, theirs in scores}

    def panel(
        self, game: str, column: str, y: str, labels: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """A panel of the report: a column of the metrics against updates, a line for each arm."""
        arms = []
        for arm in self.arms:
            if labels is not None and arm.label not in labels:
                continue
            runs = self.of(game, arm.label)
            curves = [Curve(*column_of(run, column)) for run in runs]
            if not any(len(curve.x) for curve in curves):
                continue
            band = curve_band(curves, np.random.default_rng(SEED))
            arms.append(
                {
                    "label": arm.label,
                    "x": band.x.tolist(),
                    "middle": band.middle.tolist(),
                    "low": band.low.tolist(),
                    "high": band.high.tolist(),
                    "runs": [
                        {
                            "name": run.path.name,
                            "x": list(curve.x),
                            "y": list(curve.y),
                            "status": run.status()["status"],
                            "config": run.config().leaves(),
                        }
                        for run, curve in zip(runs, curves, strict=True)
                    ],
                }
            )
        return {"title": game, "x": "updates", "y": y, "arms": arms, "lines": []}

    def score_panels(self) -> list[dict[str, Any]]:
        """The learning curves of every game, with the random policy's score as a line."""
        panels = []
        for game in self.games:
            panel = self.panel(game, "score", "score")
            panel["lines"] = [{"label": "random policy", "y": self.random_score(game)}]
            panels.append(panel)
        return panels

    def score_table(self, baseline: str) -> dict[str, Any]:
        """Interquartile means of final scores and ratios, and the improvement over the baseline, in each game."""
        columns = [
            "arm",
            "game",
            "IQM score",
            "95 % interval",
            "runs",
            "diverged",
            "E_μ[c]",
            "ESS/N",
        ]
        columns.append(f"P(better than {baseline})")
        rows = []
        for arm in self.arms:
            better = self.improvement_by_game(arm.label, baseline)
            for game, scores in zip(self.games, self.scores(arm.label).T, strict=True):
                middle, low, high = bootstrap_estimate(scores, np.random.default_rng(SEED))
                diverged = sum(
                    run.status()["status"] == "diverged" for run in self.of(game, arm.label)
                )
                ratio, share = (
                    interquartile_mean(self.endings(game, arm.label, column))
                    for column in ("mean_ratio", "effective_share")
                )
                learned = ["", ""] if np.isnan(ratio) else [f"{ratio:.3g}", f"{share:.2f}"]
                rows.append(
                    [
                        *(arm.label, game, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"),
                        *(str(len(scores)), str(diverged), *learned),
                        "" if arm.label == baseline else say(better[game]),
                    ]
                )
        return {"columns": columns, "rows": rows}

    def invariants(self) -> list[dict[str, Any]]:
        """What B3 and B6 say of every evaluation of every run that learned a ratio."""
        shares = {game: Store.open(folder).initial_share() for game, folder in self.data.items()}
        return [
            {
                "run": run.path.name,
                "update": row["update"],
                "mean_ratio": row["mean_ratio"],
                "mean_ratio_pi": row["mean_ratio_pi"],
                "state": invariant(
                    float(row["mean_ratio"]),
                    float(row["mean_ratio_pi"]),
                    run.config().ratio,
                    shares[game],
                ),
            }
            for (game, _, _), run in self.runs.items()
            for row in run.metrics()
            if "invariant" in row
        ]


def _improvement(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Estimate:
    return improvement_estimate(ours, theirs, np.random.default_rng(SEED))


def _ending(run: RunFolder, column: str) -> float:
    _, values = column_of(run, column)
    return float(values[-LAST:].mean()) if len(values) else np.nan


def column_of(run: RunFolder, column: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(updates, values) of the rows that have the column."""
    rows = [row for row in run.metrics() if column in row]
    points = np.array([[row["update"], row[column]] for row in rows], dtype=np.float64)
    return points.reshape(-1, 2)[:, 0], points.reshape(-1, 2)[:, 1]


def judge(estimates: Sequence[Estimate], seeds: int) -> str:
    """Holds if every arm is surely better, does not if one is surely worse, else not enough data.

    Args:
        estimates: of the probability that an arm beats its baseline.
        seeds: of each arm; fewer than three say nothing.
    """
    if seeds >= FEWEST_SEEDS and all(estimate.low > 0.5 for estimate in estimates):
        return "holds"
    if seeds >= FEWEST_SEEDS and any(estimate.high < 0.5 for estimate in estimates):
        return "does not hold"
    return "not enough data"


def headline(value: Estimate, what: str, of: str) -> dict[str, str]:
    """The number by which a verdict stands or falls, for the report's summary."""
    return {"value": say(value), "what": what, "of": of}


def weakest(better: Mapping[str, Estimate]) -> str:
    """The arm whose improvement is the least sure."""
    return min(better, key=lambda label: (better[label].low, better[label].value))


def say(estimate: Estimate) -> str:
    """The number with its interval."""
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


RULE = (
    "The final score of a run is the mean of its last 3 evaluations. P(arm > baseline) is the probability of "
    "improvement over pairs of seeds, with a 95 % bootstrap interval over seeds, stratified by game; fewer than three "
    "seeds say nothing. "
)
