"""What the present rules say of the published runs that were made with one dataset for all seeds.

    python benchmarks/judge_published_runs.py [results/history]

`covshift reproduce` no longer reads these runs, since seeds have datasets of their own now. Rules that ask trained
networks (Figure 5) or columns that these runs do not have (`weighting`) are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from covshift.experiments import (
    auxiliary,
    games,
    mean_ratio,
    normalization,
    ratio_discount,
    ratio_scale,
)
from covshift.experiments.comparison.design import Comparison
from covshift.experiments.comparison.reproduction import run_name
from covshift.experiments.comparison.results import Results, RunRecord, interval_of
from covshift.experiments.comparison.verdicts import say_each
from covshift.report.contrasts import Contrast, compare

MOST = 11.0
"""The largest E_μ[c] of any policy at γ̂ = 0.99 on Breakout's data, of which p₀ = 0.10 are starts (B6)."""


def read(experiment: Comparison, root: Path, seeds: int) -> Results:
    """The runs that are there, of one dataset and C51's support."""
    runs = {}
    for key, config in experiment.configs("small", seeds).items():
        old = config.replace_leaves(data_seed=0, value_bound=10.0)
        if (root / "runs" / run_name(old)).is_dir():
            runs[key] = RunRecord.read(root / "runs" / run_name(old))
    return Results(experiment, "small", runs, {})


def say(name: str, verdict: str, contrasts: dict[str, Contrast]) -> None:
    """Prints the verdict and what it rests on."""
    print(f"{name}: {verdict}. {say_each(contrasts)}")


def main() -> None:
    """Judges each figure."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/history")
    seeds = {"ratio_discount": 5, "normalization": 3, "games": 3, "auxiliary": 3, "mean_ratio": 5}
    found = {
        module.EXPERIMENT.name: read(module.EXPERIMENT, root, seeds[module.EXPERIMENT.name])
        for module in (ratio_discount, normalization, games, auxiliary, mean_ratio)
    }
    scores = {
        name: {arm.label: results.scores(arm.label) for arm in results.arms}
        for name, results in found.items()
    }

    def against(name: str, baseline: str) -> dict[str, Contrast]:
        theirs = scores[name][baseline]
        others = scores[name].items()
        return {label: compare(ours, theirs) for label, ours in others if label != baseline}

    say(
        "ratio_discount",
        ratio_discount.verdict(scores["ratio_discount"]),
        against("ratio_discount", ratio_discount.BASELINE),
    )
    (game,) = found["normalization"].games
    diverged = {
        label: np.array([run.diverged for run in found["normalization"].of(game, label)], float)
        for label in normalization.WEIGHTS
    }
    say(
        "normalization",
        normalization.verdict(scores["normalization"], diverged),
        against("normalization", normalization.BASELINE),
    )
    say("games", games.verdict(scores["games"]), against("games", games.BASELINE))
    corrected = auxiliary.CORRECTED
    say(
        "auxiliary, each against the corrected agent",
        auxiliary.verdict(scores["auxiliary"]),
        against("auxiliary", corrected),
    )
    means = {
        arm.label: found["mean_ratio"].endings(game, arm.label, "mean_ratio_pi")
        for arm in found["mean_ratio"].arms
    }
    smallest, largest = means[mean_ratio.SMALLEST], means[mean_ratio.LARGEST]
    say(
        "mean_ratio",
        mean_ratio.verdict(means),
        {"smallest above largest": compare(smallest, largest)},
    )
    scale = read(ratio_scale.EXPERIMENT, root, 3)
    ends = {arm.label: scale.endings(game, arm.label, ratio_scale.COLUMN) for arm in scale.arms}
    verdict = ratio_scale.verdict(ends[ratio_scale.BASELINE], ends[ratio_scale.UNCLIPPED], MOST)
    said = say_each({label: interval_of(values) for label, values in ends.items()})
    print(f"ratio_scale: {verdict}. {said}")


if __name__ == "__main__":
    main()
