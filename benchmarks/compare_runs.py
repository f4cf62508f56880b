"""How two arms of finished runs compare, over all games that both have and in each.

    python benchmarks/compare_runs.py c51-matched c51+target_period-8000 [--runs results/small/runs] [--seeds 10]

An arm is written as in the names of run folders: the preset and the settings that are not the preset's, without game, scale
and seeds. The numbers are P(a run of the first scores more than one of the second) and the two-sided p of the exact
permutation test, as in the verdicts. No rule was stated for comparisons that are picked this way: p-values are not corrected.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from covshift.experiments.comparison.design import VALUE_BOUNDS
from covshift.experiments.comparison.results import RunRecord
from covshift.experiments.comparison.verdicts import say
from covshift.report.contrasts import compare


def scores_of(arm: str, runs: Path, seeds: int) -> dict[str, dict[int, float]]:
    """Final scores of an arm by game and seed."""
    found: dict[str, dict[int, float]] = {}
    for folder in sorted(runs.iterdir()):
        game, *parts = folder.name.split("+")
        seed = int(parts[-1].removeprefix("seed"))
        bound = VALUE_BOUNDS["small"].get(f"MinAtar/{game}-v1")
        usual = {
            parts[-2],
            f"value_bound-{bound:g}" if bound else "",
        }  # The scale, and the game's support.
        named = [p for p in parts[:-1] if p not in usual and not p.startswith("data_seed-")]
        if sorted(named) == sorted(arm.split("+")) and seed < seeds:
            found.setdefault(game, {})[seed] = round(RunRecord.read(folder).ending("score"), 9)
    return found


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("arms", nargs=2, metavar="ARM")
    parser.add_argument("--runs", type=Path, default=Path("results/small/runs"))
    parser.add_argument("--seeds", type=int, default=10, help="seeds from 0 to this number")
    options = parser.parse_args()
    ours, theirs = (scores_of(arm, options.runs, options.seeds) for arm in options.arms)
    games = sorted(ours.keys() & theirs.keys())
    if not games:
        parser.error(f"no game in {options.runs} has runs of both arms")
    first, second = options.arms
    for game in games:
        x, y = list(ours[game].values()), list(theirs[game].values())
        print(
            f"{game:15} {first} {np.mean(x):.2f} ({len(x)} runs), {second} {np.mean(y):.2f} ({len(y)} runs): "
            f"{say(compare(x, y))}"
        )
    least = [min(len(arm[game]) for game in games) for arm in (ours, theirs)]
    every = [
        np.array([list(arm[game].values())[:n] for game in games]).T
        for arm, n in zip((ours, theirs), least, strict=True)
    ]
    print(f"{'all':15} {say(compare(*every))}")


if __name__ == "__main__":
    main()
