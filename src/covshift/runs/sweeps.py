"""Many independent runs on one machine: one process per run, a few at a time.

Each process is `covshift resume RUN`. So a sweep that was killed resumes like a single run: finished runs are
skipped, interrupted ones continue, a run that fails is tried once more, and a run that another process is training
is waited for.
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
from covshift.data.policies import policy_modules
from covshift.records import RunFolder
from covshift.runs.launch import create_run
from covshift.runs.signals import start_child, wait_for_child

_POLL_SECONDS = 0.5
_TRIES = 2
LOG = "log.txt"


@final
@dataclass(frozen=True)
class Job:
    """A run of a sweep.

    Args:
        folder: where it is.
        config: what defines it.
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
    """Runs of which some are under way; each is known by its index in `jobs`.

    Attributes:
        tries: how often each was started.
        running: their processes.
        failed: runs that were given up, with the last line of their logs.
    """

    jobs: Sequence[Job]
    tries: dict[int, int] = field(default_factory=dict)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def run(self, workers: int, runtime: RuntimeOptions, watch: Callable[[Sweep], None]) -> None:
        """Runs all jobs to their ends; on Ctrl-C the runs under way save first.

        Args:
            workers: processes at once.
            runtime: how each run is computed.
            watch: called with the sweep twice a second.
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
                wait_for_child(process)

    def _start(self, workers: int) -> bool:
        """Starts as many runs as fit; returns whether any is still waiting."""
        waiting = [
            index
            for index, job in enumerate(self.jobs)
            if index not in self.running and index not in self.failed and not job.is_over
        ]
        for index in waiting:
            folder = self.jobs[index].folder
            if len(self.running) == workers:
                break
            if RunFolder(folder).is_locked():  # By another sweep: try again later.
                continue
            trusted = policy_modules(self.jobs[index].config.data.behavior_policy)
            options = [option for module in trusted for option in ("--policy-module", module)]
            command = [sys.executable, "-m", "covshift", "resume", str(folder), *options]
            self.running[index] = start_child(command, folder / LOG)
            self.tries[index] = self.tries.get(index, 0) + 1
        return bool(waiting)

    def _collect(self) -> None:
        for index, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[index]
            wait_for_child(process)
            if not self.jobs[index].is_over and self.tries[index] >= _TRIES:
                lines = (self.jobs[index].folder / LOG).read_text(errors="replace").splitlines()
                self.failed[index] = lines[-1] if lines else f"status {process.returncode}"
