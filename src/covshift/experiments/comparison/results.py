"""The finished runs of a comparison, each read once, and the panels and tables that most figures show of them.

Experiments import this module, so it imports what reads files only when files are read: listing experiments is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from covshift.config.training import TrainConfig
from covshift.experiments.comparison.design import Arm, Comparison
from covshift.experiments.comparison.verdicts import say, say_number
from covshift.report.contrasts import Contrast, compare, difference_estimate, trimmed_estimate
from covshift.report.statistics import Curve, Estimate, curve_band, interquartile_mean

if TYPE_CHECKING:
    from covshift.data.store import Store
    from covshift.records import Row

LAST = 3
"""The end of a run is the mean of this many last values: evaluations for a score, rows for a ratio."""

SEED = 0
"""Seeds every bootstrap band and every sample of states."""


class DataKey(NamedTuple):
    """What tells the datasets of an experiment apart.

    Attributes:
        game: environment id.
        seed: the data seed.
        policies: behavior policies by name.
        shares: the share of episodes of each; none if all are picked alike.
    """

    game: str
    seed: int
    policies: tuple[str, ...] = ("uniform",)
    shares: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """A few words."""
        mixture = "" if self == DataKey(self.game, self.seed) else f", {', '.join(self.policies)}"
        shares = f" ({', '.join(f'{share:g}' for share in self.shares)})" if self.shares else ""
        return f"data of {self.game}, data seed {self.seed}{mixture}{shares}"


class DataRecord(NamedTuple):
    """What figures need to know about a dataset.

    Attributes:
        path: its folder.
        behavior_score: mean score of the behavior policy's episodes.
        initial_share: share of its states that start an episode.
    """

    path: Path
    behavior_score: float
    initial_share: float

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads it from the dataset's folder."""
        store = open_store(path)
        reward, is_initial = store.columns["reward"], store.columns["is_initial"]
        return cls(path, float(reward.sum() / is_initial.sum()), store.initial_share())


@final
@dataclass(frozen=True, eq=False)
class RunRecord:
    """What a finished run wrote down.

    Attributes:
        online: whether its agent collected its own data.
    """

    path: Path
    config: TrainConfig
    status: str
    rows: list[Row]
    online: bool = False

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Reads it from the run's folder."""
        from covshift.records import RunFolder

        folder = RunFolder(path)
        online = folder.provenance()["data"] == "online"
        return cls(path, folder.config(), folder.status()["status"], folder.metrics(), online)

    @property
    def diverged(self) -> bool:
        """Whether it stopped because the ratio or the loss diverged."""
        return self.status == "diverged"

    def curve(self, column: str) -> Curve:
        """A column of the metrics against updates, where it has values."""
        rows = [row for row in self.rows if column in row]
        points = np.array([[row["update"], row[column]] for row in rows], dtype=np.float64)
        return Curve(*points.reshape(-1, 2).T)

    def ending(self, column: str) -> float:
        """The mean of the last values of a column; NaN if there is none."""
        values = np.asarray(self.curve(column).y)[-LAST:]
        return float(values.mean()) if len(values) else np.nan


@final
@dataclass(frozen=True, eq=False)
class Results:
    """The finished runs of a comparison by game, arm and seed, and its datasets.

    An analysis that takes long goes through its parts with `slowly(label, parts)`, which shows how far it is.
    """

    experiment: Comparison
    scale: str
    runs: Mapping[tuple[str, str, int], RunRecord]
    data: Mapping[DataKey, DataRecord]
    slowly: Callable[[str, Collection[Any]], Iterable[Any]] = lambda label, parts: parts

    @property
    def games(self) -> tuple[str, ...]:
        """Environments."""
        return self.experiment.games[self.scale]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Arms of the figure."""
        return self.experiment.arms[self.scale]

    @property
    def seeds(self) -> int:
        """Runs of each arm in each game."""
        return len({seed for _, _, seed in self.runs})

    def first_arms(self, count: int) -> Results:
        """The same without the arms that follow the first `count`."""
        arms = self.arms[:count]
        labels = {arm.label for arm in arms}
        experiment = replace(self.experiment, arms={**self.experiment.arms, self.scale: arms})
        runs = {key: run for key, run in self.runs.items() if key[1] in labels}
        return replace(self, experiment=experiment, runs=runs)

    def of(self, game: str, label: str) -> list[RunRecord]:
        """The runs of an arm in a game, one per seed."""
        return [run for (g, a, _), run in self.runs.items() if (g, a) == (game, label)]

    def data_of(self, run: RunRecord) -> DataRecord:
        """The dataset that a run learned from."""
        return self.data[dataset_of(run.config)]

    def diverged(self, game: str, label: str) -> int:
        """How many runs of an arm in a game diverged."""
        return sum(run.diverged for run in self.of(game, label))

    def endings(self, game: str, label: str, column: str) -> NDArray[np.float64]:
        """For each run of an arm in a game, the mean of the last values of a column of the metrics."""
        return np.array([run.ending(column) for run in self.of(game, label)])

    def scores(self, label: str) -> NDArray[np.float64]:
        """Final scores of an arm, seeds × games.

        A run that diverged counts with its last evaluations. Scores are rounded, so that equal ones are ties
        whatever the order in which they were added up.
        """
        return np.array([self.endings(game, label, "score") for game in self.games]).T.round(9)

    def all_scores(self) -> dict[str, NDArray[np.float64]]:
        """Final scores by arm, each seeds × games."""
        return {arm.label: self.scores(arm.label) for arm in self.arms}

    def improvement(self, label: str, baseline: str) -> Contrast:
        """P(arm > baseline) over seeds and games, with its exact test."""
        return compare(self.scores(label), self.scores(baseline))

    def improvement_by_game(self, label: str, baseline: str) -> dict[str, Contrast]:
        """P(arm > baseline) over seeds, in each game."""
        scores = zip(self.games, self.scores(label).T, self.scores(baseline).T, strict=True)
        return {game: compare(ours, theirs) for game, ours, theirs in scores}

    def possible_means(self, game: str, label: str) -> tuple[float, float]:
        """The least and the most that E_μ[c] can be for any policy, with the settings of an arm.

        Starts are counted over all datasets that the arm's runs learned from.
        """
        from covshift.records import possible_means

        runs = self.of(game, label)
        share = float(np.mean([self.data_of(run).initial_share for run in runs]))
        return possible_means(runs[0].config.ratio, share)

    def panel(
        self, game: str, column: str, y: str, labels: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """A panel of the report: a column of the metrics against updates, a line for each arm, or for those named."""
        arms = []
        for label in [arm.label for arm in self.arms] if labels is None else labels:
            runs = self.of(game, label)
            curves = [run.curve(column) for run in runs]
            if not any(len(curve.x) for curve in curves):
                continue
            band = curve_band(curves, np.random.default_rng(SEED))
            lines = ("x", "middle", "low", "high")
            arms.append(
                {"label": label}
                | {name: getattr(band, name).tolist() for name in lines}
                | {"runs": [_drawn(run, curve) for run, curve in zip(runs, curves, strict=True)]}
            )
        return {"title": game, "x": "updates", "y": y, "arms": arms, "lines": []}

    def random_play(self, game: str) -> float:
        """The random policy's mean score, over its datasets; NaN where there are none."""
        scores = [
            data.behavior_score for key, data in self.data.items() if key == DataKey(game, key.seed)
        ]
        return float(np.mean(scores)) if scores else np.nan

    def score_panel(self, game: str, labels: Sequence[str] | None = None) -> dict[str, Any]:
        """The learning curves of a game, with the random policy's score as a horizontal line where there are its data."""
        score = self.random_play(game)
        lines = [] if np.isnan(score) else [{"label": "random policy", "y": score}]
        return self.panel(game, "score", "score", labels) | {"lines": lines}

    def score_panels(self) -> list[dict[str, Any]]:
        """The learning curves of every game."""
        return [self.score_panel(game) for game in self.games]

    def score_table(self, baseline: str) -> dict[str, Any]:
        """For each arm and game the interquartile means of final scores and ratios, and how the arm compares with the baseline.

        The last columns are P(better than the baseline) with its p-value, and the difference in score with its exact 95 %
        interval; p-values and intervals are of single comparisons.
        """
        columns = ["arm", "game", "IQM score", "95 % interval", "runs", "diverged"]
        columns += ["E_μ[c]", "ESS/N", f"P(better than {baseline})", "difference, 95 %"]
        if self.seeds == 1:  # One run has neither an interval nor a probability.
            columns = ["arm", "game", "score", "runs", "diverged", "E_μ[c]", "ESS/N", "difference"]
        rows = []
        for label in (arm.label for arm in self.arms):
            better = self.improvement_by_game(label, baseline)
            ours, theirs = self.scores(label).T, self.scores(baseline).T
            for game, scores, others in zip(self.games, ours, theirs, strict=True):
                middle, low, high = interval_of(scores)
                ratio, share = (
                    interquartile_mean(self.endings(game, label, column))
                    for column in ("mean_ratio", "effective_share")
                )
                learned = (
                    ["", ""] if np.isnan(ratio) else [say_number(float(ratio)), f"{share:.2f}"]
                )
                numbers = (str(len(scores)), str(self.diverged(game, label)), *learned)
                if self.seeds == 1:
                    difference = "" if label == baseline else f"{middle - others[0]:.2f}"
                    rows.append([label, game, f"{middle:.2f}", *numbers, difference])
                    continue
                rows.append(
                    [
                        *(label, game, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", *numbers),
                        "" if label == baseline else say(better[game]),
                        "" if label == baseline else _say_difference(scores, others),
                    ]
                )
        return {"columns": columns, "rows": rows}

    def saturated(self) -> str:
        """A sentence about runs whose values reach the end of their support, by game; nothing if there is none."""
        from covshift.records import support_warning

        counts = []
        for game in self.games:
            runs = [run for (of, _, _), run in self.runs.items() if of == game]
            warned = sum(bool(support_warning(run.rows)) for run in runs)
            if warned:
                counts.append(f"{warned} of {len(runs)} runs in {game}")
        if not counts:
            return ""
        return (
            " Warning: values reach the end of their support (more than 5 % of the probability on the outermost atoms) in "
            f"{', '.join(counts)}."
        )

    def invariants(self) -> list[dict[str, Any]]:
        """Whether the mean ratio is possible and in order (B3, B6), at every evaluation of runs with a ratio."""
        from covshift.records import invariant

        return [
            {
                "run": run.path.name,
                "update": row["update"],
                "mean_ratio": row["mean_ratio"],
                "mean_ratio_pi": row["mean_ratio_pi"],
                # The share of starts of an agent's own data changes, and only the run knew it.
                "state": row["invariant"]
                if run.online
                else invariant(
                    float(row["mean_ratio"]),
                    float(row["mean_ratio_pi"]),
                    run.config.ratio,
                    self.data_of(run).initial_share,
                ),
            }
            for run in self.runs.values()
            for row in run.rows
            if "invariant" in row
        ]


def dataset_of(config: TrainConfig) -> DataKey:
    """Which of the experiment's datasets a run learns from."""
    data = config.data
    return DataKey(config.env, data.data_seed, data.behavior_policy, data.behavior_shares)


def open_store(path: Path) -> Store:
    """The transitions of a dataset."""
    from covshift.data.store import Store

    return Store.open(path)


def interval_of(values: NDArray[np.float64]) -> Estimate:
    """The interquartile mean over runs, with its 95 % interval."""
    return trimmed_estimate(values)


def _say_difference(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> str:
    found = difference_estimate(ours, theirs)
    return say(found) if np.isfinite(found.low) else f"{found.value:.2f} (too few runs)"


def _drawn(run: RunRecord, curve: Curve) -> dict[str, Any]:
    return {
        "name": run.path.name,
        "x": list(curve.x),
        "y": list(curve.y),
        "status": run.status,
        "config": run.config.leaves(),
    }
