"""Numbered jobs in worker processes that end with the process that started them, however it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, final

from covshift.errors import InputError

Progress = Callable[[int], None]
"""Called with how much more has been done."""

Job = Callable[[int, Progress], int]
"""Does the job of a number, reports its progress, and returns a count."""


_KILLED = "a worker process was killed; run the same command again to continue"


def ignore_progress(more: int) -> None:
    """For jobs that nobody watches."""


@final
class JobPool:
    """Does the jobs 0, 1, … in worker processes, ahead of whoever asks for their results.

    Args:
        job: what to do; it is pickled.
        count: number of jobs.
        workers: number of processes.
        ahead: how many jobs after the one asked for are started.
        progress: called with the progress that the jobs report.
    """

    def __init__(
        self,
        job: Job,
        count: int,
        *,
        workers: int,
        ahead: int,
        progress: Progress = ignore_progress,
    ) -> None:
        self._job, self._count, self._ahead, self._progress = job, count, ahead, progress
        context = get_context("spawn")
        # One entry for each job, so that each has one writer and needs no lock.
        self._done, self._reported = context.RawArray("q", count), 0
        self._pool = ProcessPoolExecutor(workers, context, _start_worker, (self._done,))
        self._futures: list[Future[int]] = []

    def result(self, number: int) -> int:
        """Waits for a job, and returns what it returned.

        Raises:
            InputError: a worker was killed.
        """
        try:
            for later in range(len(self._futures), min(number + self._ahead + 1, self._count)):
                self._futures.append(self._pool.submit(_run, self._job, later))
            future = self._futures[number]
            while True:
                wait([future], timeout=0.2)
                done = sum(self._done)
                self._progress(done - self._reported)
                self._reported = done
                if future.done():
                    return future.result()
        except BrokenProcessPool as error:
            raise InputError(_KILLED) from error

    def close(self) -> None:
        """Ends the workers after the jobs that they are doing; jobs that have not started are dropped."""
        self._pool.shutdown(cancel_futures=True)


@final
class Worker:
    """One process that does a job at a time, started before its result is asked for.

    Args:
        module: a module that its jobs need. A server process imports it once for all workers of this process, which
            takes seconds where torch is among what it imports.
    """

    def __init__(self, module: str) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([module])
        self._pool = ProcessPoolExecutor(1, context, _start_worker, (None,))
        self._future: Future[int] | None = None

    def start(self, job: Callable[[], int]) -> None:
        """Starts a job, which is pickled."""
        try:
            self._future = self._pool.submit(job)
        except BrokenProcessPool as error:
            raise InputError(_KILLED) from error

    def result(self) -> int:
        """Waits for the job that was started last, and returns what it returned.

        Raises:
            InputError: the process was killed.
        """
        assert self._future is not None
        try:
            return self._future.result()
        except BrokenProcessPool as error:
            raise InputError(_KILLED) from error

    def close(self) -> None:
        """Ends the process after the job that it is doing."""
        self._pool.shutdown(cancel_futures=True)


_done: Any = None
"""In a worker: how much each job has done, shared with the process that started it."""


def _start_worker(done: Any) -> None:
    """Leaves Ctrl-C to the process that started this one, and ends with it."""
    global _done
    _done = done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(job: Job, number: int) -> int:
    return job(number, partial(_add_progress, number))


def _add_progress(number: int, more: int) -> None:
    _done[number] += more
