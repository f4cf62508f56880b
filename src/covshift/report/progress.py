"""Progress with rate and time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


def track(console: Console, label: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """Passes items on and shows how many of `total` are done."""
    if not console.is_terminal:
        started = time.monotonic()
        yield from items
        console.print(
            f"{label}: {total} done in {time.monotonic() - started:.0f} s", highlight=False
        )
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
        for item in items:
            yield item
            speed = progress.tasks[task].speed
            progress.update(task, advance=1, rate=f"{speed:.1f}/s" if speed else "")
