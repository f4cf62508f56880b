"""`covshift experiments` and `covshift reproduce`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from covshift.errors import InputError

STUDY = (
    "estimation",
    "Every estimator of ratios and values: error, coverage and time on five domains, for growing data and distance.",
    "no runs, about 12 min on one core at the scale small",
)
"""The one experiment that trains no agents."""


@dataclass(frozen=True)
class Experiments:
    """List every experiment: the figures it answers to, its claim, and what it costs."""

    scale: Literal["paper", "small", "smoke"] = "small"
    """The size that costs are estimated for."""

    def run(self) -> None:
        """A line an experiment."""
        from rich.console import Console
        from rich.text import Text

        from covshift.experiments.experiment import find_experiments

        console = Console()
        lines = [
            (", ".join((*experiment.aliases, name)), experiment.claim, experiment.cost(self.scale))
            for name, experiment in find_experiments().items()
        ]
        for known, claim, cost in (*lines, STUDY):
            if console.is_terminal:
                console.print(Text.assemble((known, "bold"), f"\n  {claim}\n  ", (cost, "dim")))
            else:
                print(f"{known} · {claim} · {cost}")


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment, or what is missing of it, and write its figure and a page.

    Collects the data once, runs every arm and seed, and analyzes them. The same command goes on where it was
    interrupted; experiments that share runs share them under one --out.
    """

    name: Annotated[str, tyro.conf.Positional]
    """An experiment or a figure: figure-1-left, figure-2, weighting, … (covshift experiments lists them)."""

    out: Path
    """Folder for data, runs, and a folder for each experiment."""

    scale: Literal["paper", "small", "smoke"] = "small"
    """paper: the paper's games, seeds and iterations; small: MinAtar; smoke: to see that it runs."""

    seeds: int | None = None
    """Seeds of each arm; by default the experiment's own number."""

    engine: Literal["local", "ray"] = "local"
    """local: processes on this machine; ray: tasks on a Ray cluster (extra 'ray')."""

    ray_address: str | None = None
    """Address of the Ray cluster; without it Ray starts on this machine."""

    workers: int = 2
    """Runs at once, with the engine local."""

    def run(self) -> None:
        """Runs, and says where the page is."""
        from rich.console import Console

        from covshift.experiments.experiment import named_experiment
        from covshift.experiments.reproduction import local_engine, ray_engine, reproduce
        from covshift.report.figures_page import find_sources, write_report

        console = Console()
        if self.name == STUDY[0]:
            if self.seeds is not None or self.engine != "local" or self.ray_address is not None:
                raise InputError(
                    f"{self.name} trains no agents: --seeds, --engine and --ray-address are not for it"
                )
            from covshift.experiments.estimation.study import run

            place = self.out / self.name
            print(f"The page: {run(place, scale=self.scale, console=console).page}")
            return
        engine = local_engine(self.workers)
        if self.engine == "ray":
            engine = ray_engine(self.ray_address)
        command = f"covshift reproduce {self.name} --scale {self.scale} --out {shlex.quote(str(self.out))}"
        if self.seeds is not None:
            command += f" --seeds {self.seeds}"
        figure = reproduce(
            named_experiment(self.name),
            self.scale,
            self.out,
            seeds=self.seeds,
            engine=engine,
            command=command,
            console=console,
        )
        page = figure.with_name("index.html")
        write_report(*find_sources([figure.parent]), page)
        print(f"Figure, table and raw numbers: {figure.parent}. The page: {page}")
