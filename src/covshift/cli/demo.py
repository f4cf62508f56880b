"""`covshift demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """Train from a random policy's data, with and without the correction, and write a page that shows it.

    Takes about four minutes on two cores. The same command goes on where it was interrupted.
    """

    out: Path
    """Folder for the data, the runs, and index.html (the page: open it in a browser)."""

    transitions: int = 300_000
    """Transitions of random play to learn from."""

    updates: int = 20_000
    """Updates of each run."""

    seeds: int = 2
    """Runs of each of the two agents."""

    workers: int = 2
    """Runs at once, a thread each."""

    def run(self) -> None:
        """Runs the demo and says where the page is."""
        from rich.console import Console

        from covshift.experiments.demo.study import run

        page = run(
            self.out,
            transitions=self.transitions,
            updates=self.updates,
            seeds=self.seeds,
            workers=self.workers,
            console=Console(),
        )
        print(f"The page: {page}")
