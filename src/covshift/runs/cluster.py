"""Runs of a sweep as Ray tasks, on this machine or on any cluster that shares the run folders.

A task is `covshift resume RUN` on whatever node Ray picks; where a node dies, Ray starts the task again, and the run goes
on from its newest checkpoint.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covshift.config.training import RuntimeOptions
from covshift.errors import InputError
from covshift.records import RunFolder
from covshift.runs.launch import prepare
from covshift.runs.sweeps import LOG, Job

_POLL_SECONDS = 0.5
_RETRIES = 3


def run_on_ray(
    jobs: list[Job],
    runtime: RuntimeOptions,
    watch: Callable[[list[int]], None],
    *,
    address: str | None,
    cpus: float = 1.0,
    gpus: float = 0.0,
) -> dict[int, str]:
    """Runs all jobs as Ray tasks; returns those that failed, with what they said.

    Args:
        jobs: the runs.
        runtime: of each run.
        watch: is told which are not over, twice a second.
        address: of a cluster; None starts Ray on this machine.
        cpus: that a run asks for.
        gpus: that a run asks for.

    Raises:
        InputError: Ray is not installed.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise InputError(
            "the engine ray needs the extra 'ray': pip install 'covshift[ray]'"
        ) from error
    for job in jobs:
        prepare(RunFolder(job.folder), job.config, job.data, runtime)
    ours = not ray.is_initialized()
    if ours:
        ray.init(
            address=address, log_to_driver=False, include_dashboard=False, logging_level="ERROR"
        )
    try:
        # A run that fails by itself is tried once more by us; a lost node is Ray's to retry.
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=_RETRIES)(resume)
        failed: dict[int, str] = {}
        waiting = {task.remote(str(job.folder)): place for place, job in enumerate(jobs)}
        tries = dict.fromkeys(range(len(jobs)), 1)
        while waiting:
            watch(list(waiting.values()))
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
            for reference in done:
                place = waiting.pop(reference)
                reason = _outcome(ray, reference)
                if jobs[place].is_over:
                    continue
                if tries[place] < 2:
                    tries[place] += 1
                    waiting[task.remote(str(jobs[place].folder))] = place
                else:
                    failed[place] = reason
        watch([])
        return failed
    finally:
        if ours:
            ray.shutdown()


def _outcome(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return str(error).splitlines()[0]


def resume(folder: str) -> str:
    """Goes on with a run in a process of its own; returns the last line that it said."""
    log = Path(folder) / LOG
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "covshift", "resume", folder],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else f"status {process.returncode}"
