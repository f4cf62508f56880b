"""`covshift demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from covshift.cli.reproduce import show_outcome
from covshift.experiments.demo import EXPERIMENT, SIZES, Sizes


@dataclass(frozen=True)
class Demo:
    """Evaluate a policy and train an agent from a random policy's data, and write a page about the result.

    First a policy in four rooms, whose exact value is known; then agents that learn Breakout with and without the
    correction. Takes about four minutes on two cores. If it is interrupted, the same command continues.
    """

    out: Path
    """Folder for the data, the runs, and index.html (the page: open it in a browser)."""

    transitions: int = SIZES["small"].transitions
    """Transitions of random play to learn from; with fewer the agents learn less."""

    updates: int = SIZES["small"].updates
    """Updates of each run; with more it takes longer and learns more."""

    seeds: int = SIZES["small"].seeds
    """Runs of each of the two agents."""

    workers: int = 2
    """Runs at a time, with one thread each."""

    def extras(self) -> tuple[str, ...]:
        """The extras that the demo needs."""
        return EXPERIMENT.extras("small")

    def run(self) -> None:
        """Runs the demo and says where the page is."""
        from rich.console import Console

        from covshift.experiments.demo.study import run_demo
        from covshift.experiments.experiment import RunOptions

        sizes = Sizes(self.transitions, self.updates, self.seeds)
        show_outcome(
            run_demo(self.out, sizes, RunOptions(workers=self.workers, stack=1), Console())
        )
