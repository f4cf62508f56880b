"""Many independent runs on one machine: a few processes at a time, each with one run or a stack of runs.

Each process is `covshift resume RUN …`. So a sweep that was killed resumes like a single run: finished runs are
skipped, interrupted ones continue, and a run that another process is training is waited for. If a process fails, each
of its runs is tried once more, alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.policies import policy_modules
from covshift.learners.deep import stack_key
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
        data: a dataset's folder, or `stream` or `online`.
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
        running: their processes; the runs of a stack have the same one.
        failed: runs that were given up, with the last line of their logs.
    """

    jobs: Sequence[Job]
    tries: dict[int, int] = field(default_factory=dict)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    _logs: dict[int, Path] = field(default_factory=dict)

    def run(
        self,
        workers: int,
        runtime: RuntimeOptions,
        watch: Callable[[Sweep], None],
        stack: int = 1,
    ) -> None:
        """Runs all jobs to their ends; on Ctrl-C the runs under way save first.

        Args:
            workers: processes at once.
            runtime: how each run is computed.
            watch: called with the sweep twice a second.
            stack: most runs that a process updates as one stack.
        """
        for job in self.jobs:
            create_run(RunFolder(job.folder), job.config, job.data, runtime)
        try:
            while self._start(workers, stack) or self.running:
                watch(self)
                time.sleep(_POLL_SECONDS)
                self._collect()
            watch(self)
        finally:
            processes = set(self.running.values())
            for process in processes:
                process.terminate()  # A background job ignores SIGINT until its loop has begun.
            for process in processes:
                wait_for_child(process)

    def _start(self, workers: int, stack: int) -> bool:
        """Starts as many runs as fit; returns whether any is still waiting."""
        waiting = [
            index
            for index, job in enumerate(self.jobs)
            if index not in self.running and index not in self.failed and not job.is_over
        ]
        # Those that another sweep has locked are tried again later.
        free = [k for k in waiting if not RunFolder(self.jobs[k].folder).is_locked()]
        failed = [k for k in free if k in self.tries]
        fresh = [k for k in free if k not in self.tries]
        stacks = [[k] for k in failed]
        stacks += stacks_of(self.jobs, fresh, stack, workers - len(set(self.running.values())))
        for members in stacks[: workers - len(set(self.running.values()))]:
            configs = [self.jobs[k].config for k in members]
            folders = [self.jobs[k].folder for k in members]
            stacked = stack > 1 and stack_key(configs[0]) is not None
            trusted = {m for config in configs for m in policy_modules(config.data.behavior_policy)}
            command = [
                *(sys.executable, "-m", "covshift", "resume"),
                *map(str, folders),
                *(["--stacked"] if stacked else []),
                *(option for module in sorted(trusted) for option in ("--policy-module", module)),
            ]
            process = start_child(command, folders[0] / LOG)
            for k in members:
                self.running[k], self._logs[k] = process, folders[0] / LOG
                self.tries[k] = self.tries.get(k, 0) + 1
        return bool(waiting)

    def _collect(self) -> None:
        for index, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[index]
            wait_for_child(process)
            if not self.jobs[index].is_over and self.tries[index] >= _TRIES:
                lines = self._logs[index].read_text(errors="replace").splitlines()
                self.failed[index] = lines[-1] if lines else f"status {process.returncode}"


def stacks_of(
    jobs: Sequence[Job], waiting: Sequence[int], stack: int, workers: int
) -> list[list[int]]:
    """Which of the waiting jobs are to be updated together, by their indices.

    Stacks are no larger than it takes to give each of the workers something to do.
    """
    size = min(stack, -(-len(waiting) // max(workers, 1)))
    alone: list[list[int]] = []
    together: dict[Hashable, list[int]] = {}
    for index in waiting:
        key = stack_key(jobs[index].config)
        if key is None:
            alone.append([index])
        else:
            together.setdefault(key, []).append(index)
    parts = [
        members[k : k + size] for members in together.values() for k in range(0, len(members), size)
    ]
    return sorted([*parts, *alone])
