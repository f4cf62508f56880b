"""`covshift theory`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Theory:
    """Check every claim of the paper, its errata and beyond, and write a page that teaches them.

    Takes about two minutes. Ends with status 1 if a claim does not hold.
    """

    out: Path
    """Folder for theory.json (a record a claim), weighting.csv (the survey of weightings) and index.html (the page: open it in a browser)."""

    seed: int = 0
    """Seed of the claims' cases and of the survey."""

    problems: int = 3000
    """How many random problems each of the survey's two generators draws."""

    def run(self) -> None:
        """Runs the study, says what came of it and where the page is."""
        from rich.console import Console

        from covshift.experiments.theory.study import run

        outcome = run(self.out, seed=self.seed, problems=self.problems, console=Console())
        failing = [finding.id for finding in outcome.findings if not finding.holds]
        holding = len(outcome.findings) - len(failing)
        print(f"{holding} of {len(outcome.findings)} claims hold. The page: {outcome.page}")
        if failing:
            print(f"These do not hold: {', '.join(failing)}", file=sys.stderr)
            sys.exit(1)
