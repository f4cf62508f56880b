"""Training runs in progress: a readable view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Self, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from covshift.progress import new_bar, say_time_left
from covshift.records import Row, RunFolder, find_runs, support_warning

_SHOWN = {
    "score": ("score", "{:,.2f}", "mean over the last evaluation's episodes"),
    "mean_ratio": ("mean c under μ", "{:.3f}", "over the data"),
    "mean_ratio_pi": ("mean c under π", "{:.3f}", "over states that the policy itself visits"),
    "exact_mean_ratio": ("exact mean c", "{:.3f}", "by episodes of π, without the learned c"),
    "calibration_error": (
        "calibration error",
        "{:.2f}",
        "largest relative error against these episodes",
    ),
    "effective_share": ("effective share", "{:.1%}", "ESS/N of the data when drawn by c"),
    "edge_share": ("at the edges", "{:.1%}", "probability on the outermost atoms of the value"),
    "value_loss": ("value loss", "{:.4f}", "cross-entropy"),
    "ratio_loss": ("ratio loss", "{:.4f}", "squared error"),
    "invariant": ("invariant", "{}", "E_μ[c] within its bounds; usually E_π[c] ≥ E_μ[c]"),
}
"""Columns of metrics.csv with their label, format and meaning."""


@final
class TrainingView:
    """Shows how far a run is, how fast it goes, and its newest numbers.

    Args:
        console: where to show it.
        label: the heading.
        start: updates that were done before this session.
        total: updates in all.
    """

    def __init__(self, console: Console, label: str, start: int, total: int) -> None:
        self._console, self._label, self._start, self._total = console, label, start, total
        self._newest: Row = {}
        self._began, self._done = time.monotonic(), start
        self._bar = new_bar(console)
        self._task = self._bar.add_task("updates", total=total, completed=start, rate="")
        self._live = _live(console)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self._draw())
            self._live.stop()

    def tick(self, update: int, row: Row | None) -> None:
        """Shows that an update was done, and the row of metrics that it wrote, if any."""
        self._done = update
        if row is not None:
            self._newest |= row
        if self._live is None:
            if row is not None:
                self._console.print(self._line(row), highlight=False, soft_wrap=True)
        elif row is not None or update % 10 == 0:
            self._bar.update(self._task, completed=update, rate=f"{self._rate():,.1f}/s")
            self._live.update(self._draw())

    def _rate(self) -> float:
        return (self._done - self._start) / max(time.monotonic() - self._began, 1e-9)

    def _line(self, row: Row) -> str:
        shown = [
            f"{label} {text.format(row[name])}"
            for name, (label, text, _) in _SHOWN.items()
            if name in row
        ]
        head = f"update {self._done:,}/{self._total:,}"
        left = say_time_left(self._total - self._done, self._rate())
        return " · ".join((head, *shown, f"{self._rate():,.1f}/s", left))

    def _draw(self) -> Group:
        table = Table(show_header=False, box=None)
        for name, (label, text, meaning) in _SHOWN.items():
            if name in self._newest:
                table.add_row(label, text.format(self._newest[name]), Text(meaning, style="dim"))
        warning = support_warning([self._newest])
        lines = [Text(f"warning: {warning}", style="yellow")] if warning else []
        return Group(Text(self._label, style="bold"), table, *lines, self._bar)


@final
class SweepView:
    """Shows all runs of a sweep on one screen; where there is no terminal, a line when a run ends.

    Args:
        console: where to show it.
        names: names of the runs.
        totals: updates of each run.
    """

    def __init__(self, console: Console, names: Sequence[str], totals: Sequence[int]) -> None:
        self._console, self._names, self._totals = console, names, totals
        self._began, self._first = time.monotonic(), -1
        self._ended: set[str] = set()
        self._live = _live(console)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, folders: Sequence[RunFolder], running: Collection[int]) -> None:
        """Reads the folders' status and shows it.

        Args:
            folders: the runs' folders, in the order of their names.
            running: indices of the runs that are being trained.
        """
        status = [folder.status() for folder in folders]
        done = sum(int(state["update"]) for state in status)
        self._first = done if self._first < 0 else self._first
        rate = (done - self._first) / max(time.monotonic() - self._began, 1e-9)
        ended = [state["status"] in ("finished", "diverged") for state in status]
        total = sum(
            int(state["update"]) if state["status"] == "diverged" else updates
            for state, updates in zip(status, self._totals, strict=True)
        )
        head = f"{done:,}/{total:,} updates · {rate:,.0f}/s · {say_time_left(total - done, rate)}"
        if self._live is None:
            for name, state, over in zip(self._names, status, ended, strict=True):
                if over and name not in self._ended:
                    self._ended.add(name)
                    line = f"{name}: {state['status']} after {state['update']:,} updates · {head}"
                    self._console.print(line, highlight=False, soft_wrap=True)
            return
        table = Table(box=None, show_header=False)
        for index in sorted(running):
            updates, update = self._totals[index], int(status[index]["update"])
            bar = ProgressBar(total=updates, completed=update, width=30)
            table.add_row(self._names[index], f"{update:,}/{updates:,}", bar)
        self._live.update(Group(Text(f"{sum(ended)}/{len(status)} runs · {head}"), table))


def watch_runs(console: Console, root: Path, pause: Callable[[float], None] = time.sleep) -> None:
    """Follows the runs below a folder until none is left that could continue, or until Ctrl-C.

    On a terminal a table is kept up to date; elsewhere a line is printed when a run has come further. Runs that start
    meanwhile appear too.

    Args:
        console: where to show them.
        root: the folder.
        pause: waits for some seconds.
    """
    live, shown = _live(console), dict[str, tuple[str, ...]]()
    with live or nullcontext(), suppress(KeyboardInterrupt):
        while True:
            rows = [run.summary(root) for run in find_runs(root)]
            ended = sum(row[4].startswith(("finished", "diverged", "unreadable")) for row in rows)
            head = f"{ended} of {len(rows)} runs under {root} have ended"
            if live is not None:
                live.update(Group(Text(head, style="bold"), _table(rows)), refresh=True)
            else:
                for row in rows:
                    if shown.get(row[0]) != row:
                        console.print(
                            " · ".join(row), highlight=False, markup=False, soft_wrap=True
                        )
            shown = {row[0]: row for row in rows}
            if ended == len(rows):
                break
            pause(_WATCH_SECONDS)
    console.print(head, highlight=False, markup=False, soft_wrap=True)


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, show_header=False)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    return table


_WATCH_SECONDS = 2.0


def _live(console: Console) -> Live | None:
    return Live(console=console, refresh_per_second=4) if console.is_terminal else None
