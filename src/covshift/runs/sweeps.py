"""Many independent runs on one machine: a process each, a few at a time.

What runs is `covshift resume RUN`, so that a sweep that was killed goes on like any run: finished runs are passed
over, interrupted ones go on, one that fails is tried once more, and one that another process is at is waited for.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.records import RunFolder
from covshift.runs.launch import create_run

_POLL_SECONDS = 0.5
_TRIES = 2
LOG = "log.txt"


@final
@dataclass(frozen=True)
class Job:
    """A run of a sweep.

    Args:
        folder: of the run.
        config: its definition.
        data: a dataset's folder, or `stream`.
    """

    folder: Path
    config: TrainConfig
    data: str

    @property
    def status(self) -> str:
        """new, running, interrupted, finished or diverged."""
        return str(RunFolder(self.folder).status()["status"])

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.status in ("finished", "diverged")


@final
@dataclass
class Sweep:
    """Runs of which some are under way.

    Attributes:
        jobs: all of them.
        tries: how often each was started, by its place.
        running: processes, by the place of their run.
        failed: places of runs that were given up, with what they said last.
    """

    jobs: Sequence[Job]
    tries: dict[int, int] = field(default_factory=dict)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def run(self, workers: int, runtime: RuntimeOptions, watch: Callable[[Sweep], None]) -> None:
        """Runs all to their ends; Ctrl-C lets those under way save first.

        Args:
            workers: processes at once.
            runtime: of each run.
            watch: is shown the sweep, twice a second.
        """
        for job in self.jobs:
            create_run(RunFolder(job.folder), job.config, job.data, runtime)
        try:
            while self._start(workers) or self.running:
                watch(self)
                time.sleep(_POLL_SECONDS)
                self._collect()
            watch(self)
        finally:
            for process in self.running.values():
                process.send_signal(signal.SIGINT)
            for process in self.running.values():
                process.wait()

    def _start(self, workers: int) -> bool:
        """Starts what fits; whether something still waits."""
        waiting = [
            place
            for place, job in enumerate(self.jobs)
            if place not in self.running and place not in self.failed and not job.is_over
        ]
        for place in waiting:
            folder = self.jobs[place].folder
            if len(self.running) == workers:
                break
            if RunFolder(folder).is_held():  # By another sweep: looked at again later.
                continue
            with (folder / LOG).open("ab") as log:
                self.running[place] = subprocess.Popen(
                    [sys.executable, "-m", "covshift", "resume", str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches it through us, once.
                )
            self.tries[place] = self.tries.get(place, 0) + 1
        return bool(waiting)

    def _collect(self) -> None:
        for place, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[place]
            if not self.jobs[place].is_over and self.tries[place] >= _TRIES:
                lines = (self.jobs[place].folder / LOG).read_text(errors="replace").splitlines()
                self.failed[place] = lines[-1] if lines else f"status {process.returncode}"
