"""Runs of a sweep as Ray tasks, on this machine or on any cluster that shares the run folders.

A task resumes a run on whatever node Ray picks. If the node dies, Ray starts the task again, and the run continues
from its newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from covshift.config.training import RuntimeOptions
from covshift.data.policies import policy_modules
from covshift.errors import InputError, reason_of
from covshift.extras import ray_session
from covshift.learners.deep import Diverged, stack_key
from covshift.records import RunFolder
from covshift.runs.launch import create_run, resume_run
from covshift.runs.stacks import resume_stack
from covshift.runs.sweeps import LOG, Job, stacks_of
from covshift.runs.training import run_to_end

_POLL_SECONDS = 0.5
_RETRIES = 3
_TRIES = 2
_SAVE_SECONDS = 60


def run_on_ray(
    jobs: list[Job],
    runtime: RuntimeOptions,
    watch: Callable[[list[int]], None],
    *,
    address: str | None,
    stack: int = 1,
    cpus: float = 1.0,
    gpus: float = 0.0,
) -> dict[int, str]:
    """Runs all jobs as Ray tasks; on Ctrl-C the runs under way save first.

    Args:
        jobs: the runs.
        runtime: how each run is computed.
        watch: called twice a second with the indices of the runs that are not over.
        address: a cluster's address; None starts Ray on this machine.
        stack: most runs that a task updates as one stack.
        cpus: cores that one task asks for.
        gpus: GPUs that one task asks for.

    Returns:
        The indices of the runs that failed, with the reasons.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """
    with ray_session(address) as ray:
        return _run(ray, jobs, runtime, watch, stack, cpus, gpus)


def _run(
    ray: Any,
    jobs: list[Job],
    runtime: RuntimeOptions,
    watch: Callable[[list[int]], None],
    stack: int,
    cpus: float,
    gpus: float,
) -> dict[int, str]:
    failed: dict[int, str] = {}
    waiting: dict[Any, list[int]] = {}
    try:
        for job in jobs:
            create_run(RunFolder(job.folder), job.config, job.data, runtime)
        # We retry a run that fails by itself; Ray retries one whose node was lost.
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=_RETRIES)(resume)
        # A worker's working directory is not ours.
        folders = [str(job.folder.resolve()) for job in jobs]
        tries = dict.fromkeys(range(len(jobs)), 0)

        def start(members: list[int]) -> None:
            for index in members:
                tries[index] += 1
            stacked = stack > 1 and stack_key(jobs[members[0]].config) is not None
            named = {
                m for k in members for m in policy_modules(jobs[k].config.data.behavior_policy)
            }
            own = [folders[index] for index in members]
            waiting[task.remote(own, stacked, sorted(named))] = members

        cores = int(ray.cluster_resources().get("CPU", 1) // max(cpus, 1.0))
        for members in stacks_of(jobs, range(len(jobs)), stack, cores):
            start(members)
        while waiting:
            watch([index for members in waiting.values() for index in members])
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=_POLL_SECONDS)
            for reference in done:
                members = waiting.pop(reference)
                reason = _outcome(ray, reference)
                for index in members:
                    if jobs[index].is_over:
                        continue
                    if tries[index] < _TRIES:
                        start([index])
                    else:
                        failed[index] = reason
        watch([])
        return failed
    except KeyboardInterrupt:
        for reference in waiting:
            ray.cancel(reference)
        ray.wait(list(waiting), num_returns=len(waiting), timeout=_SAVE_SECONDS)
        raise


def _outcome(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        return reason_of(cause)


def resume(folders: list[str], stacked: bool, trusted_modules: Sequence[str] = ()) -> str:
    """Resumes runs in the task's own process, so that all end together; returns how they ended."""
    runs = [RunFolder(Path(folder)) for folder in folders]
    with (runs[0].path / LOG).open("a") as log:

        def say(text: str) -> None:
            print(text, file=log, flush=True)

        try:
            if stacked:
                resume_stack(runs, say, trusted_modules)
            else:
                trainer = resume_run(runs[0], None, say, trusted_modules)
                run_to_end(trainer, lambda update, row: None)
        except (Diverged, InputError) as error:
            say(str(error))
            return str(error)
    return "finished"
