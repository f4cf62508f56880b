"""Numbered jobs in processes that end with the one that started them, however it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from covshift.errors import InputError

Progress = Callable[[int], None]
Job = Callable[[int, Progress], int]


def run_jobs(job: Job, count: int, workers: int, progress: Progress) -> Generator[int]:
    """What `job(0, …)`, `job(1, …)`, … return, in this order; closing cancels what has not begun.

    Args:
        job: can be pickled; gets its number and a function that it tells how much more it has done.
        count: how many jobs.
        workers: how many processes.
        progress: told what the jobs tell, as they go.

    Raises:
        InputError: a process was killed.
    """
    context = get_context("spawn")
    # One entry for each job, so that each has one writer and none needs a lock.
    done, told = context.RawArray("q", count), 0
    pool = ProcessPoolExecutor(workers, context, _start, (done,))
    try:
        for future in [pool.submit(_run, job, number) for number in range(count)]:
            while not future.done():
                wait([future], timeout=0.2)
                now = sum(done)
                progress(now - told)
                told = now
            yield future.result()
    except BrokenProcessPool as error:
        raise InputError("a worker was killed; the same command goes on") from error
    finally:
        pool.shutdown(cancel_futures=True)


_done: Any = None
"""In a worker: how much each job has done, shared with the process that started it."""


def become_worker() -> None:
    """Leaves Ctrl-C to the process that started this one, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _start(done: Any) -> None:
    global _done
    _done = done
    become_worker()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(job: Job, number: int) -> int:
    return job(number, partial(_count, number))


def _count(number: int, more: int) -> None:
    _done[number] += more
