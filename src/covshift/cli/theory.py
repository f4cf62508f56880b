"""`covshift theory`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from covshift.cli.reproduce import show_outcome
from covshift.experiments.theory import PROBLEMS


@dataclass(frozen=True)
class Theory:
    """Check every claim of the paper, its errata and the results past it, and write a page that explains them.

    Takes about two minutes. Ends with status 1 if a claim does not hold.
    """

    out: Path
    """Folder for theory.json (one record per claim), weighting.csv (the survey of weightings) and index.html (the page: open it in a browser)."""

    seed: int = 0
    """Seed of the claims' cases and of the survey."""

    problems: int = PROBLEMS["small"]
    """Random problems that each of the survey's two generators draws; more of them give smoother figures and take longer."""

    def run(self) -> None:
        """Checks the claims and says how many hold and where the page is."""
        from rich.console import Console

        from covshift.experiments.theory.study import check_theory

        show_outcome(check_theory(self.out, Console(), seed=self.seed, problems=self.problems))
