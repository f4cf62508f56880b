"""How far the law that a run draws its transitions from is from the law that it means to draw from, and what a floor costs.

    python benchmarks/replay_law.py DATASET RUN [RUN …]

The first table compares the priorities in each run's last checkpoint with the law in proportion to the ratio of its
network at that moment, over every transition of the dataset: a sweep over all of them would close exactly this distance.
The second takes that law and asks, for several floors under the effective share ESS/N, how far from it one must go by
tempering (draw in proportion to cᵗ) and by a share of uniform draws. Distances are total variation: the largest
difference in the probability of any set of transitions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from covshift.data.store import Store
from covshift.records import RunFolder
from covshift.runs import load_run
from covshift.runs.checkpoints import read_checkpoint

FLOORS = (0.1, 0.2, 0.3, 0.5)
Law = NDArray[np.float64]


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", type=Path, help="the dataset that the runs learned from")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders with a prioritized replay")
    options = parser.parse_args()
    store = Store.open(options.dataset)
    rows = np.flatnonzero(store.is_transition)
    staleness = Table("run", "distance drawn from meant", "ESS/N drawn", "ESS/N meant", "sweep, s")
    floors = Table("run", "floor", "tempering τ", "its distance", "uniform share", "its distance")
    for path in options.runs:
        start = time.perf_counter()
        meant = law_of_ratio(path, store, rows)
        seconds = time.perf_counter() - start
        priorities = read_checkpoint(RunFolder(path).checkpoints).state.tensors["priorities"]
        drawn = normalized(priorities.numpy()[rows])
        staleness.add_row(
            path.name,
            f"{distance(drawn, meant):.3f}",
            f"{share_of(drawn):.3f}",
            f"{share_of(meant):.3f}",
            f"{seconds:.1f}",
        )
        for floor in FLOORS:
            if share_of(meant) >= floor:
                continue
            tau = 1.0 - smallest(meant, floor, lambda law, x: tempered(law, 1.0 - x))
            uniform = smallest(meant, floor, mixed)
            floors.add_row(
                path.name,
                f"{floor:g}",
                f"{tau:.2f}",
                f"{distance(tempered(meant, tau), meant):.3f}",
                f"{uniform:.2f}",
                f"{distance(mixed(meant, uniform), meant):.3f}",
            )
    console = Console(width=120)
    console.print(staleness, floors)


def law_of_ratio(path: Path, store: Store, rows: NDArray[np.int64]) -> Law:
    """The law in proportion to max(c, floor) of a run's network."""
    agent = load_run(path)
    parts = np.array_split(rows, -(-len(rows) // 4096))
    c = np.concatenate([agent.ratio(store.states(part)) for part in parts]).astype(np.float64)
    floor = agent.config.replay.priority_floor
    if agent.config.replay.priority_scale == "mean":
        floor *= c.mean()
    return normalized(np.maximum(c, floor))


def normalized(weights: Law) -> Law:
    """Weights over their sum."""
    return np.asarray(weights / weights.sum())


def tempered(law: Law, tau: float) -> Law:
    """The law in proportion to pᵗ."""
    return normalized(np.power(law, tau))


def mixed(law: Law, share: float) -> Law:
    """The law with a share of uniform draws."""
    return (1.0 - share) * law + share / len(law)


def share_of(law: Law) -> float:
    """ESS/N."""
    return float(1.0 / (len(law) * np.square(law).sum()))


def distance(law: Law, other: Law) -> float:
    """Total variation."""
    return float(0.5 * np.abs(law - other).sum())


def smallest(law: Law, floor: float, change: Callable[[Law, float], Law]) -> float:
    """The smallest x in [0, 1] at which the changed law has the effective share `floor`; it grows with x."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        fits = share_of(change(law, middle)) >= floor
        low, high = (low, middle) if fits else (middle, high)
    return high


if __name__ == "__main__":
    main()
