"""From a comparison to its figure: data, runs, analysis, files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from covshift.config.presets import make_config
from covshift.config.training import TrainConfig
from covshift.experiments.comparison.design import DATASETS, Comparison
from covshift.experiments.comparison.results import (
    DataKey,
    DataRecord,
    Results,
    RunRecord,
    dataset_of,
)
from covshift.experiments.comparison.running import collect_data, make_engine, train_all
from covshift.experiments.experiment import Outcome, RunOptions
from covshift.experiments.tables import write_csv
from covshift.files import CHECKSUMS, sha256, write_json
from covshift.progress import track
from covshift.records import COLUMNS
from covshift.report.drawing import draw_figure
from covshift.report.figures_page import SMOKE, find_sources, write_report
from covshift.runs.data_sources import ONLINE
from covshift.runs.sweeps import Job
from covshift.validation import MOST_SEEDS, check_count
from covshift.version import __version__


def reproduce(experiment: Comparison, out: Path, options: RunOptions, console: Console) -> Outcome:
    """Trains the missing runs of a comparison and writes its figure, tables and page into its folder under `out`.

    Runs lie in `out/runs`, named after their settings, so that experiments that share an arm share its runs.
    """
    engine = make_engine(options)
    stated = experiment
    experiment = stated.changed(options)
    seeds = experiment.seeds[options.scale]
    if options.seeds is not None:
        seeds = check_count("seeds", options.seeds, MOST_SEEDS)
    configs = experiment.configs(options.scale, seeds)
    online = experiment.online_arms(options.scale)
    data: dict[DataKey, Path] = {}
    for (_, label, _), config in configs.items():
        if label not in online and dataset_of(config) not in data:
            data[dataset_of(config)] = collect_data(config, out / "data", console)
    jobs = {
        key: Job(
            out / "runs" / run_name(config, online=key[1] in online),
            config,
            ONLINE if key[1] in online else str(data[dataset_of(config)]),
        )
        for key, config in configs.items()
    }
    train_all(list(jobs.values()), engine, console)
    read = track(console, "runs read", jobs.items(), len(jobs))
    results = Results(
        experiment,
        options.scale,
        {key: RunRecord.read(job.folder) for key, job in read},
        {key: DataRecord.read(path) for key, path in data.items()},
        slowly=lambda label, parts: track(console, label, parts, len(parts)),
    )
    figure = _figure(results, len(stated.arms[options.scale]), out, options)
    # Beside the figure as it was stated, not in its place.
    folder = out / (f"{experiment.name}-changed" if _is_changed(options) else experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    with console.status("Writing the figure, its tables and the page"):
        _write(folder, figure, results)
    return Outcome(
        folder / "index.html",
        f"{_said(figure)}\nFigure, table and raw numbers: {folder}.",
        banner=SMOKE if options.scale == "smoke" else "",
    )


def _is_changed(options: RunOptions) -> bool:
    return bool(options.set or options.arm)


def _said(figure: dict[str, Any]) -> str:
    """The claim, the verdict and the number that decides it, for the terminal."""
    headline = figure["headline"]
    return (
        f"Claim: {figure['claim']}\n"
        f"Verdict: {figure['verdict']}. {headline['what']}, {headline['of']}: {headline['value']}."
    )


def run_name(config: TrainConfig, *, online: bool = False) -> str:
    """A readable name that differs for runs that differ: game, preset, settings that are not the preset's, scale, seed.

    Runs that collect their own data have the word online in it.
    """
    usual = make_config(config.env, config.preset, config.scale).leaves()
    changes = [
        f"{name}-{_text_of(value)}"
        for name, value in config.leaves().items()
        if name != "seed" and value != usual[name]
    ]
    game = config.env.split("/")[-1].split("-")[0]
    if online:
        changes.append(ONLINE)
    parts = [game, config.preset, *changes, config.scale, f"seed{config.seed}"]
    return "+".join(parts).replace("/", "-").replace(":", "-")


def _text_of(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text_of, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _command(name: str, out: Path, options: RunOptions) -> str:
    command = f"covshift reproduce {name} --scale {options.scale} --out {shlex.quote(str(out))}"
    if options.seeds is not None:
        command += f" --seeds {options.seeds}"
    for flag, texts in (("--set", options.set), ("--arm", options.arm)):
        command += "".join(f" {flag} {shlex.quote(text)}" for text in texts)
    return command


def _figure(results: Results, stated: int, out: Path, options: RunOptions) -> dict[str, Any]:
    """The contents of figure.json; the first `stated` arms are judged, and the others are shown."""
    experiment = results.experiment
    configs = json.dumps(
        [dataclasses.asdict(run.config) for run in results.runs.values()], sort_keys=True
    )
    hashes = {key.text: sha256(data.path / CHECKSUMS) for key, data in results.data.items()}
    analysis = experiment.analyze(results)
    if stated < len(results.arms):
        judged = experiment.analyze(results.first_arms(stated))
        analysis |= {name: judged[name] for name in ("verdict", "found", "headline")}
    return {
        "galleries": [],
        "histograms": [],
        **analysis,
        "found": analysis["found"] + results.saturated(),
        "name": experiment.name,
        "alias": ", ".join(experiment.aliases) or None,
        "title": experiment.title,
        "claim": experiment.claim,
        "paper": experiment.paper,
        "rule": experiment.rule,
        "command": _command(experiment.name, out, options),
        "scale": results.scale,
        "version": __version__,
        "hashes": hashes | {"configurations": hashlib.sha256(configs.encode()).hexdigest()},
        "invariants": results.invariants(),
        "differences": [*experiment.differences, *about_data(results), *_about_changes(options)],
    }


def about_data(results: Results) -> list[str]:
    """Which runs learned from which dataset."""
    number = DATASETS[results.scale]
    if not results.data:
        return []
    if results.experiment.first_seed:
        return ["The run of seed k learns from the dataset of data seed k, in every arm."]
    if number == 1:
        return [
            "All seeds learn from one dataset: intervals leave out the chance of its collection."
        ]
    return [
        f"Each game has {number} datasets, each collected with a data seed of its own; the run of seed k learns from "
        f"the dataset of data seed k mod {number}, in every arm."
    ]


def _about_changes(options: RunOptions) -> list[str]:
    """What the command line changed."""
    settings = [f"Changed in every arm: {text}." for text in options.set]
    return settings + [f"An arm that was added and is not judged: {text}." for text in options.arm]


def _write(folder: Path, figure: dict[str, Any], results: Results) -> None:
    write_json(folder / "figure.json", figure)
    if figure["panels"]:
        draw_figure(figure, [folder / "figure.svg", folder / "figure.pdf"])
    write_csv(folder / "table.csv", [figure["table"]["columns"], *figure["table"]["rows"]])
    write_csv(folder / "runs.csv", _all_rows(results), digits=6)
    write_report(find_sources([folder]), folder / "index.html")


def _all_rows(results: Results) -> Iterator[list[Any]]:
    """Every row of every run, with its game, arm, seed, data seed and status."""
    yield ["game", "arm", "seed", "data_seed", "status", *COLUMNS]
    for (game, arm, seed), run in results.runs.items():
        for row in run.rows:
            data_seed = run.config.data.data_seed
            yield [game, arm, seed, data_seed, run.status, *(row.get(name, "") for name in COLUMNS)]
