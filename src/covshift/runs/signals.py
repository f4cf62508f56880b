"""Ctrl-C, SIGTERM and a closed terminal, as requests that a loop looks at when it can stop; children that end with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

LIFELINE = "COVSHIFT_LIFELINE"
"""Environment variable of a child whose standard input ends when the process that started it does."""


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


def start_child(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a covshift command that is interrupted, and so saves, when this process ends in whatever way.

    Ctrl-C does not reach the child unless it is sent to it. Call `wait_for_child` at last.

    Args:
        command: the command.
        log: file to which its output is appended.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Never written to; it is closed with this process.
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {LIFELINE: "stdin"},
        )


def wait_for_child(process: subprocess.Popen[bytes]) -> None:
    """Waits until a child has ended, and frees what it held."""
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def end_with_parent() -> None:
    """In a child that `start_child` started: sends SIGTERM to this process when the parent is gone."""
    # Children of this process have other parents.
    if os.environ.pop(LIFELINE, None) is not None:
        Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
