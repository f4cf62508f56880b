"""`covshift experiments` and `covshift reproduce`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from covshift.cli.arguments import optional

if TYPE_CHECKING:
    from covshift.experiments.experiment import Outcome


@dataclass(frozen=True)
class Experiments:
    """List every experiment: the figures it reproduces, its claim, and how long it takes."""

    scale: Literal["paper", "atari", "small", "smoke"] = "small"
    """The size that times are estimated for."""

    def run(self) -> None:
        """Prints one line per experiment, or a paragraph each on a terminal."""
        from rich.console import Console
        from rich.text import Text

        from covshift.experiments.experiment import find_experiments

        console = Console()
        for name, experiment in find_experiments().items():
            names = ", ".join((*experiment.aliases, name))
            claim, cost = experiment.claim, experiment.cost(self.scale)
            if console.is_terminal:
                console.print(Text.assemble((names, "bold"), f"\n  {claim}\n  ", (cost, "dim")))
            else:
                print(f"{names} · {claim} · {cost}")


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment, or what is missing of it, and write its results and a page.

    Collects the data once, trains every arm and seed, and analyzes the runs. If it is interrupted, the same command
    continues. Experiments with the same --out share data and runs.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]
    """An experiment or a figure: figure-1-left, figure-2, weighting, … (covshift experiments lists them)."""

    out: Path
    """Folder for data, runs, and a folder for each experiment."""

    scale: Literal["paper", "atari", "small", "smoke"] = "small"
    """paper: the paper's games, seeds and iterations; atari: its games on small frames, in short runs; small: MinAtar; smoke: a quick test that everything runs."""

    seeds: Annotated[int | None, optional("INT")] = None
    """Runs of each arm, each with a seed of its own; more of them make verdicts surer. By default the experiment's own number."""

    engine: Literal["local", "ray"] = "local"
    """local: processes on this machine; ray: tasks on a Ray cluster (extra 'ray')."""

    ray_address: Annotated[str | None, optional("HOST:PORT")] = None
    """Address of the Ray cluster; without it Ray starts on this machine."""

    workers: int = 2
    """Processes at a time, with the engine local; take about as many as there are cores."""

    stack: int = 8
    """Runs that a process updates at once as one stack, at most: runs that differ only in seed, data, the ratio's loss weight η and discount γ̂, or learning rate. 1 gives every run a process of its own."""

    set: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="KEY=VALUE")
    ] = ()
    """Change a setting in every arm: key=value, by the names of the options of covshift train. Repeat it for several."""

    arm: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME:KEY=VALUE,…")
    ] = ()
    """Add an arm: 'name:key=value,…'. The key preset names the method to start from, by default c51-corrected. Repeat it for several."""

    def extras(self) -> tuple[str, ...]:
        """The extras that the experiment needs, and the engine."""
        from covshift.experiments.experiment import named_experiment

        engine = ("ray",) if self.engine == "ray" else ()
        return (*named_experiment(self.name).extras(self.scale), *engine)

    def run(self) -> None:
        """Runs the experiment and says where the page is."""
        from rich.console import Console

        from covshift.experiments.experiment import RunOptions, named_experiment

        options = RunOptions(
            self.scale,
            self.seeds,
            self.workers,
            self.engine,
            self.ray_address,
            self.stack,
            self.set,
            self.arm,
        )
        show_outcome(named_experiment(self.name).run(self.out, options, Console()))


def show_outcome(outcome: Outcome) -> None:
    """Prints what came out and where the page is; exits with status 1 if something does not hold that should."""
    if outcome.banner:
        print(outcome.banner)
    print(f"{outcome.text} The page: {outcome.page}".strip())
    if outcome.failure:
        print(outcome.failure, file=sys.stderr)
        sys.exit(1)
