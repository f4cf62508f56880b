"""Progress with rate and time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


def track(console: Console, label: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """Passes items on and shows how many of `total` are done."""
    with counter(console, label, total) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def counter(console: Console, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that is told how many more are done."""
    if not console.is_terminal:
        started = time.monotonic()
        yield lambda _: None
        seconds = time.monotonic() - started
        rate = total / max(seconds, 1e-9)
        console.print(f"{label}: {total:,} in {seconds:.0f} s, {rate:,.1f}/s", highlight=False)
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

        def advance(count: int) -> None:
            speed = progress.tasks[task].speed
            progress.update(task, advance=count, rate=f"{speed:,.1f}/s" if speed else "")

        yield advance
