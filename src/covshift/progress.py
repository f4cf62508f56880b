"""Progress with rate and time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0
BAR_SECONDS = 0.1

Item = TypeVar("Item")


def track(console: Console, label: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """Passes items on and shows how many of `total` are done."""
    with counter(console, label, total) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def counter(
    console: Console, label: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """A function that is told how many more are done.

    Args:
        console: a bar where it is a terminal, else a line now and then.
        label: what is counted.
        total: how many there will be.
        clock: seconds.
    """
    if not console.is_terminal:
        yield from _plain_lines(console, label, total, clock)
        return
    columns = (
        TextColumn("{task.description:22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=total, rate="")

        def tell(count: int, _: float) -> None:
            speed = progress.tasks[task].speed
            progress.update(task, advance=count, rate=f"{speed:,.1f}/s" if speed else "")

        paced = _Paced(tell, BAR_SECONDS, clock)
        yield paced.advance
        paced.flush()


def _plain_lines(
    console: Console, label: str, total: int, clock: Callable[[], float]
) -> Iterator[Callable[[int], None]]:
    """A line now and then, with the rate since the one before, and one at the end."""
    started, done = clock(), 0

    def tell(count: int, seconds: float) -> None:
        nonlocal done
        done += count
        rate = count / seconds
        left = timedelta(seconds=round(max(0, total - done) / rate)) if rate else "unknown time"
        # A collection makes its last shard whole before it is cut.
        line = f"{label}: {min(done, total):,} of {total:,}, {rate:,.1f}/s, {left} left"
        console.print(line, highlight=False)

    yield _Paced(tell, PLAIN_SECONDS, clock).advance
    seconds = clock() - started
    rate = total / max(seconds, 1e-9)
    console.print(f"{label}: {total:,} in {seconds:.0f} s, {rate:,.1f}/s", highlight=False)


class _Paced:
    """Gathers counts and tells them at intervals: telling costs more than a step of a game."""

    def __init__(
        self, tell: Callable[[int, float], None], interval: float, clock: Callable[[], float]
    ) -> None:
        self._tell, self._interval, self._clock = tell, interval, clock
        self._count, self._told_at = 0, clock()

    def advance(self, count: int) -> None:
        self._count += count
        if self._clock() - self._told_at >= self._interval:
            self.flush()

    def flush(self) -> None:
        now = self._clock()
        self._tell(self._count, now - self._told_at)
        self._count, self._told_at = 0, now
