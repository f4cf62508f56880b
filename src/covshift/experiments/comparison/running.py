"""Collecting the data of an experiment and training its runs, here or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Collector
from covshift.errors import InputError
from covshift.experiments.experiment import RunOptions
from covshift.progress import counter
from covshift.records import RunFolder
from covshift.report.live import SweepView
from covshift.runs.cluster import run_on_ray
from covshift.runs.data_sources import COLLECTED
from covshift.runs.launch import check_same, ensure_dataset
from covshift.runs.sweeps import Job, Sweep
from covshift.validation import check_count, check_workers

WHILE_COLLECTING = (
    "warm_up",
    "stream_shard",
    "acting_epsilon",
    "epsilon_decay",
    "online_shard",
)
"""Settings that a run on a finished dataset does not use."""

Engine = Callable[[list[Job], RuntimeOptions, Callable[[list[int]], None]], dict[int, str]]
"""Trains jobs, reports which are running, and returns those that failed with their last message."""


def make_engine(options: RunOptions) -> Engine:
    """Processes on this machine, or tasks of a Ray cluster."""
    stack = check_count("stack", options.stack)
    if options.engine == "ray":
        return partial(run_on_ray, address=options.ray_address, stack=stack)
    workers = check_workers(options.workers)

    def run(
        jobs: list[Job], runtime: RuntimeOptions, watch: Callable[[list[int]], None]
    ) -> dict[int, str]:
        sweep = Sweep(jobs)
        sweep.run(workers, runtime, lambda now: watch(list(now.running)), stack)
        return sweep.failed

    return run


def collect_data(config: TrainConfig, root: Path, console: Console) -> Path:
    """The dataset of a configuration under `root`; collected unless it is there."""

    def collecting(collector: Collector, folder: Path) -> None:
        _print(console, f"Collecting {collector.request.env} into {folder}")
        with counter(console, "transitions", collector.request.transitions) as advance:
            collector.collect(progress=advance)

    return ensure_dataset(config, root, collecting)


def train_all(jobs: list[Job], engine: Engine, console: Console) -> None:
    """Trains every run to its end; a run that ended before is left as it is.

    Raises:
        InputError: a run failed, or one that ended before has other settings than its name says.
    """
    for job in jobs:
        if job.is_over:  # Its name leaves out what the preset has, which may have changed since.
            unused = () if job.data in COLLECTED else WHILE_COLLECTING
            check_same(RunFolder(job.folder), job.config, unused)
    waiting = [job for job in jobs if not job.is_over]
    if not waiting:
        return
    _print(
        console,
        f"{len(waiting)} of {len(jobs)} runs to do; Ctrl-C saves them, and the same command continues",
    )
    folders = [RunFolder(job.folder) for job in waiting]
    totals = [job.config.optimization.num_updates for job in waiting]
    with SweepView(console, [job.folder.name for job in waiting], totals) as view:
        failed = engine(
            waiting, RuntimeOptions(threads=1), lambda running: view.show(folders, running)
        )
    for index, reason in failed.items():
        _print(console, f"{waiting[index].folder} failed twice: {reason}")
    unfinished = sum(not job.is_over for job in waiting)
    if unfinished:
        raise InputError(
            f"{unfinished} of {len(jobs)} runs are not finished; the same command tries them again"
        )


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
