"""A run as it goes: a readable view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Self, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from covshift.records import Row, RunFolder

_SHOWN = {
    "score": ("score", "{:,.2f}", "mean of the last evaluation's episodes"),
    "mean_ratio": ("mean c under μ", "{:.3f}", "over the data"),
    "mean_ratio_pi": ("mean c under π", "{:.3f}", "over states that the policy itself visits"),
    "effective_share": ("effective share", "{:.1%}", "of the data, if drawn by c: ESS/N"),
    "value_loss": ("value loss", "{:.4f}", "cross-entropy"),
    "ratio_loss": ("ratio loss", "{:.4f}", "squared error"),
    "invariant": ("invariant", "{}", "E_μ[c] possible, E_π[c] ≥ E_μ[c]"),
}


@final
class TrainingView:
    """Shows how far a run is, how fast it goes, and its newest numbers.

    Args:
        console: where.
        label: of the run.
        start: updates done before.
        total: updates in all.
    """

    def __init__(self, console: Console, label: str, start: int, total: int) -> None:
        self._console, self._label, self._start, self._total = console, label, start, total
        self._newest: Row = {}
        self._began, self._done = time.monotonic(), start
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("updates", total=total, completed=start, rate="")
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(self._draw(), console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.update(self._draw())
            self._live.stop()

    def tick(self, update: int, row: Row | None) -> None:
        """An update was done; a row is shown."""
        self._done = update
        if row is not None:
            self._newest |= row
        if self._live is None:
            if row is not None:
                self._console.print(self._line(row), highlight=False, soft_wrap=True)
            return
        if row is not None or update % 10 == 0:
            self._progress.update(self._task, completed=update, rate=f"{self._rate():,.1f}/s")
            self._live.update(self._draw())

    def _rate(self) -> float:
        return (self._done - self._start) / max(time.monotonic() - self._began, 1e-9)

    def _line(self, row: Row) -> str:
        shown = [
            f"{label} {text.format(row[name])}"
            for name, (label, text, _) in _SHOWN.items()
            if name in row
        ]
        rate = self._rate()
        left = f"{_clock((self._total - self._done) / rate)} left" if rate > 0 else ""
        head = f"update {self._done:,}/{self._total:,}"
        return " · ".join(part for part in (head, *shown, f"{rate:,.1f}/s", left) if part)

    def _draw(self) -> Group:
        table = Table(show_header=False, box=None)
        for name, (label, text, meaning) in _SHOWN.items():
            if name in self._newest:
                table.add_row(label, text.format(self._newest[name]), Text(meaning, style="dim"))
        return Group(Text(self._label, style="bold"), table, self._progress)


@final
class SweepView:
    """All runs of a sweep on one screen; plain lines elsewhere, when a run ends.

    Args:
        console: where.
        names: of the runs.
        totals: updates of each.
    """

    def __init__(self, console: Console, names: Sequence[str], totals: Sequence[int]) -> None:
        self._console, self._names, self._totals = console, names, totals
        self._began, self._first = time.monotonic(), -1
        self._said: set[str] = set()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, folders: Sequence[RunFolder], running: Collection[int]) -> None:
        """Reads the folders' status and shows it."""
        status = [folder.status() for folder in folders]
        done = sum(int(state["update"]) for state in status)
        self._first = done if self._first < 0 else self._first
        seconds = time.monotonic() - self._began
        rate = (done - self._first) / max(seconds, 1e-9)
        ends = [
            int(state["update"]) if state["status"] == "diverged" else total
            for state, total in zip(status, self._totals, strict=True)
        ]
        left = f"{_clock((sum(ends) - done) / rate)} left" if rate > 0 else ""
        head = f"{done:,}/{sum(ends):,} updates · {rate:,.0f}/s · {left}"
        if self._live is None:
            for name, state in zip(self._names, status, strict=True):
                if state["status"] in ("finished", "diverged") and name not in self._said:
                    self._said.add(name)
                    line = f"{name}: {state['status']} after {state['update']:,} updates · {head}"
                    self._console.print(line, highlight=False, soft_wrap=True)
            return
        over = sum(state["status"] in ("finished", "diverged") for state in status)
        table = Table(box=None, show_header=False)
        for place in sorted(running):
            total = self._totals[place]
            update = int(status[place]["update"])
            bar = ProgressBar(total=total, completed=update, width=30)
            table.add_row(self._names[place], f"{update:,}/{total:,}", bar)
        self._live.update(Group(Text(f"{over}/{len(status)} runs · {head}"), table))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
