"""`covshift report`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from covshift.cli.arguments import optional


@dataclass(frozen=True)
class Report:
    """Write one page about all figures and runs under some folders: claims, verdicts, curves, frames.

    The page is a single file that loads nothing else, so it can be sent, opened on a phone and printed.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, optional("FOLDER …")]
    """Folders to search, at any depth, for figure.json files and runs."""

    out: Path
    """The page, ending in .html."""

    def run(self) -> None:
        """Writes the page and says where it is."""
        from covshift.report.figures_page import find_sources, write_report

        sources = find_sources(self.paths)
        write_report(sources, self.out)
        for reason in sources.unreadable:
            print(f"covshift: warning: unreadable figure: {reason}", file=sys.stderr)
        figures, runs, _ = sources
        parts = [(len(figures), "figure"), (len(runs), "run")]
        said = " and ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in parts)
        print(f"{said}{' without one' if figures else ''}. The page: {self.out}")
