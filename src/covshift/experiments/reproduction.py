"""From the name of an experiment to its figure: data, runs, analysis, page."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from covshift.config.presets import SCALES, make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Collector
from covshift.errors import InputError
from covshift.experiments.experiment import Experiment
from covshift.experiments.results import Results
from covshift.files import CHECKSUMS, sha256, write_json
from covshift.progress import counter
from covshift.records import COLUMNS, RunFolder
from covshift.report.drawing import draw_figure
from covshift.report.live import SweepView
from covshift.runs.cluster import run_on_ray
from covshift.runs.launch import ensure_dataset
from covshift.runs.sweeps import Job, Sweep
from covshift.version import __version__

Engine = Callable[[list[Job], RuntimeOptions, Callable[[list[int]], None]], dict[int, str]]
"""Runs jobs, tells which are under way, and returns those that failed with what they said."""


def reproduce(
    experiment: Experiment,
    scale: str,
    out: Path,
    *,
    seeds: int | None,
    engine: Engine,
    command: str,
    console: Console,
) -> Path:
    """Runs what is missing of an experiment and writes its figure, table and raw numbers into its folder under `out`.

    Runs lie under `out/runs` by what they are, so that experiments that share an arm share its runs.

    Args:
        experiment: what to run.
        scale: its size.
        out: folder.
        seeds: of each arm; the experiment's own number where None is given.
        engine: what runs the jobs.
        command: that the figure names.
        console: for progress.

    Returns:
        The figure's file.
    """
    if scale not in SCALES:
        raise InputError(f"there is no scale '{scale}'; say {' | '.join(SCALES)}")
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds must be at least 1, but it is {seeds}")
    configs = experiment.configs(scale, seeds or experiment.seeds[scale])
    data = {
        game: _dataset(make_config(game, scale=scale), out, console)
        for game in experiment.games[scale]
    }
    jobs = {
        key: Job(out / "runs" / run_name(config), config, str(data[config.env]))
        for key, config in configs.items()
    }
    failed = _run(list(jobs.values()), engine, console)
    for job, reason in failed:
        console.print(
            f"{job.folder} failed twice: {reason}", highlight=False, markup=False, soft_wrap=True
        )
    runs = {key: RunFolder(job.folder) for key, job in jobs.items() if job.is_over}
    if len(runs) < len(jobs):
        raise InputError(
            f"{len(jobs) - len(runs)} of {len(jobs)} runs are not over; the same command tries them again"
        )
    place = out / experiment.name
    place.mkdir(parents=True, exist_ok=True)
    results = Results(experiment, scale, runs, data)
    with console.status(f"Reading the ends of {len(results.runs)} runs"):
        figure = _figure(results, command)
    write_json(place / "figure.json", figure)
    if figure["panels"]:
        draw_figure(figure, [place / "figure.svg", place / "figure.pdf"])
    with (place / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([figure["table"]["columns"], *figure["table"]["rows"]])
    _write_raw(place / "runs.csv", results)
    return place / "figure.json"


def run_name(config: TrainConfig) -> str:
    """A readable name that differs for runs that differ: environment, preset, what is not the preset's, seed."""
    usual = make_config(config.env, config.preset, config.scale).leaves()
    changes = [
        f"{name}-{value:g}" if isinstance(value, float) else f"{name}-{value}"
        for name, value in config.leaves().items()
        if name != "seed" and value != usual[name]
    ]
    game = config.env.split("/")[-1].split("-")[0]
    parts = [game, config.preset, *changes, config.scale, f"seed{config.seed}"]
    return "+".join(parts).replace("/", "-")


def local_engine(workers: int) -> Engine:
    """Processes on this machine, a thread each when several run at once."""
    if workers < 1:
        raise InputError(f"workers must be at least 1, but it is {workers}")

    def run(
        jobs: list[Job], runtime: RuntimeOptions, watch: Callable[[list[int]], None]
    ) -> dict[int, str]:
        sweep = Sweep(jobs)
        sweep.run(workers, runtime, lambda now: watch(list(now.running)))
        return sweep.failed

    return run


def ray_engine(address: str | None) -> Engine:
    """Tasks of a Ray cluster; None starts Ray on this machine."""
    return partial(run_on_ray, address=address)


def _dataset(config: TrainConfig, out: Path, console: Console) -> Path:
    def collecting(collector: Collector, folder: Path) -> None:
        console.print(
            f"Collecting {collector.request.env} into {folder}", highlight=False, markup=False
        )
        with counter(console, "transitions", collector.request.transitions) as advance:
            collector.collect(progress=advance)

    return ensure_dataset(config, out / "data", collecting)


def _run(jobs: list[Job], engine: Engine, console: Console) -> list[tuple[Job, str]]:
    waiting = [job for job in jobs if not job.is_over]
    if not waiting:
        return []
    folders = [RunFolder(job.folder) for job in waiting]
    totals = [job.config.optimization.num_updates for job in waiting]
    names = [job.folder.name for job in waiting]
    console.print(
        f"{len(waiting)} of {len(jobs)} runs to do; Ctrl-C saves them, and the same command goes on",
        highlight=False,
    )
    with SweepView(console, names, totals) as view:
        failed = engine(
            waiting, RuntimeOptions(threads=1), lambda running: view.show(folders, running)
        )
    return [(waiting[place], reason) for place, reason in failed.items()]


def _figure(results: Results, command: str) -> dict[str, Any]:
    experiment = results.experiment
    contents = {"galleries": [], "histograms": []} | experiment.analyze(results)
    configs = [dataclasses.asdict(run.config()) for run in results.runs.values()]
    text = json.dumps(configs, sort_keys=True)
    hashes = {
        f"data of {game}": sha256(folder / CHECKSUMS) for game, folder in results.data.items()
    }
    return contents | {
        "name": experiment.name,
        "alias": ", ".join(experiment.aliases) or None,
        "title": experiment.title,
        "claim": experiment.claim,
        "paper": experiment.paper,
        "rule": experiment.rule,
        "command": command,
        "scale": results.scale,
        "version": __version__,
        "hashes": hashes | {"configurations": hashlib.sha256(text.encode()).hexdigest()},
        "invariants": results.invariants(),
        "differences": list(experiment.differences),
    }


def _write_raw(path: Path, results: Results) -> None:
    """Every row of every run, with its game, arm and seed."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["game", "arm", "seed", "status", *COLUMNS])
        for (game, arm, seed), run in results.runs.items():
            status = run.status()["status"]
            for row in run.metrics():
                writer.writerow(
                    [game, arm, seed, status, *(_short(row.get(name, "")) for name in COLUMNS)]
                )


def _short(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
