"""Runs of a sweep as Ray tasks, on this machine or on any cluster that shares the run folders.

A task resumes a run on whatever node Ray picks. If the node dies, Ray starts the task again, and the run continues
from its newest checkpoint.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from covshift.config.training import RuntimeOptions
from covshift.data.policies import policy_modules
from covshift.errors import InputError
from covshift.learners.deep import Diverged
from covshift.records import RunFolder
from covshift.runs.launch import create_run, resume_run
from covshift.runs.sweeps import LOG, Job
from covshift.runs.training import run_to_end

_POLL_SECONDS = 0.5
_RETRIES = 3
_SAVE_SECONDS = 60


def run_on_ray(
    jobs: list[Job],
    runtime: RuntimeOptions,
    watch: Callable[[list[int]], None],
    *,
    address: str | None,
    cpus: float = 1.0,
    gpus: float = 0.0,
) -> dict[int, str]:
    """Runs all jobs as Ray tasks; on Ctrl-C the runs under way save first.

    Args:
        jobs: the runs.
        runtime: how each run is computed.
        watch: called twice a second with the indices of the runs that are not over.
        address: a cluster's address; None starts Ray on this machine.
        cpus: cores that one run asks for.
        gpus: GPUs that one run asks for.

    Returns:
        The indices of the runs that failed, with the reasons.

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
        create_run(RunFolder(job.folder), job.config, job.data, runtime)
    ours = not ray.is_initialized()
    if ours:
        ray.init(
            address=address, log_to_driver=False, include_dashboard=False, logging_level="ERROR"
        )
    failed: dict[int, str] = {}
    waiting: dict[Any, int] = {}
    try:
        # We retry a run that fails by itself; Ray retries one whose node was lost.
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=_RETRIES)(resume)
        # A worker's working directory is not ours.
        named = [policy_modules(job.config.data.behavior_policy) for job in jobs]
        folders = [(str(job.folder.resolve()), own) for job, own in zip(jobs, named, strict=True)]
        waiting |= {task.remote(*folder): index for index, folder in enumerate(folders)}
        tries = dict.fromkeys(range(len(jobs)), 1)
        while waiting:
            watch(list(waiting.values()))
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
            for reference in done:
                index = waiting.pop(reference)
                reason = _outcome(ray, reference)
                if jobs[index].is_over:
                    continue
                if tries[index] < 2:
                    tries[index] += 1
                    waiting[task.remote(*folders[index])] = index
                else:
                    failed[index] = reason
        watch([])
        return failed
    except KeyboardInterrupt:
        for reference in waiting:
            ray.cancel(reference)
        ray.wait(list(waiting), num_returns=len(waiting), timeout=_SAVE_SECONDS)
        raise
    finally:
        if ours:
            ray.shutdown()


def _outcome(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        return f"{type(cause).__name__}: {cause}".splitlines()[0]


def resume(folder: str, trusted_modules: Sequence[str] = ()) -> str:
    """Resumes a run in the task's own process, so that both end together; returns how it ended."""
    run = RunFolder(Path(folder))
    with (run.path / LOG).open("a") as log:

        def say(text: str) -> None:
            print(text, file=log, flush=True)

        try:
            run_to_end(resume_run(run, None, say, trusted_modules), lambda update, row: None)
        except (Diverged, InputError) as error:
            say(str(error))
            return str(error)
    return "finished"
