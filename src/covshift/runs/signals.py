"""Ctrl-C, SIGTERM and a closed terminal, as requests that a loop looks at when it can stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list of the signals that arrived; the second of a kind raises KeyboardInterrupt at once."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if number in asked:
            raise KeyboardInterrupt
        asked.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # As under nohup.
        numbers.append(signal.SIGHUP)
    before = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, note)
    except ValueError:  # Not the main thread, where no signal arrives.
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
