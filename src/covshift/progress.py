"""How many of some number are done, how fast, and the time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LINE_SECONDS = 10.0
_BAR_SECONDS = 0.1
"""Seconds between two lines, and between two changes of a bar."""

_LATE, _EVER = 30.0, 86_400.0
"""Seconds that a bar's rate is taken over."""

Item = TypeVar("Item")


def track(console: Console, label: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """Yields the items and shows how many of `total` are done; the time left follows from the time of all so far."""
    with counter(console, label, total, steady=True) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def counter(
    console: Console,
    label: str,
    total: int,
    clock: Callable[[], float] = time.monotonic,
    *,
    steady: bool = False,
) -> Iterator[Callable[[int], None]]:
    """Shows progress; yields a function to call with the number of steps done since its last call.

    Args:
        console: where to show it.
        label: what is counted.
        total: the number of steps in all.
        clock: returns the time in seconds.
        steady: take the time left from the rate since the start, for steps that take different times; otherwise from
            the rate of late, since steps that were found finished took none.
    """
    if not console.is_terminal:
        yield from _plain_lines(console, label, total, clock, steady)
        return
    with new_bar(console, 22, _EVER if steady else _LATE) as progress:
        task = progress.add_task(label, total=total, rate="")

        def tell(count: int, _: float) -> None:
            speed = progress.tasks[task].speed
            progress.update(task, advance=count, rate=f"{speed:,.1f}/s" if speed else "")

        paced = _Paced(tell, _BAR_SECONDS, clock)
        yield paced.advance
        paced.flush()


def new_bar(console: Console, label_width: int = 0, memory: float = _LATE) -> Progress:
    """A bar with counts, the rate in the task's field `rate`, and the time left by the rate of the last `memory` seconds."""
    return Progress(
        TextColumn(f"{{task.description:{label_width or ''}}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        speed_estimate_period=memory,
    )


def say_time_left(steps: float, rate: float) -> str:
    """The time that `steps` take at `rate` steps per second.

    Example:
        >>> say_time_left(7300, 2.0), say_time_left(1, 0.0)
        ('1:00:50 left', 'unknown time left')
    """
    return f"{timedelta(seconds=round(steps / rate))} left" if rate > 0 else "unknown time left"


def _plain_lines(
    console: Console, label: str, total: int, clock: Callable[[], float], steady: bool
) -> Iterator[Callable[[int], None]]:
    """Prints a line every few seconds, with the rate since the last one or since the start, and a line at the end."""
    started, done = clock(), 0

    def tell(count: int, seconds: float) -> None:
        nonlocal done
        done += count
        rate = done / (clock() - started) if steady else count / seconds
        left = say_time_left(max(0, total - done), rate)
        # A collection fills its last shard before it is cut, so that more than `total` can be done.
        line = f"{label}: {min(done, total):,} of {total:,}, {rate:,.1f}/s, {left}"
        console.print(line, highlight=False)

    yield _Paced(tell, _LINE_SECONDS, clock).advance
    seconds = clock() - started
    rate = total / max(seconds, 1e-9)
    console.print(f"{label}: {total:,} in {seconds:.0f} s, {rate:,.1f}/s", highlight=False)


class _Paced:
    """Adds counts up and shows them at intervals, since showing one takes longer than a step of a game."""

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
