"""`covshift collect`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from covshift.cli.arguments import optional
from covshift.config.environment import EnvOptions
from covshift.extras import extras_of_env


@dataclass(frozen=True)
class Collect:
    """Run a behavior policy μ in an environment and store what it sees, with the probability μ(a|s) of every action.

    To continue a collection that was interrupted, run the same command again: the result has the same bytes as
    if it had not been interrupted.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")]
    """Environment: ALE/Pong-v5, MinAtar/Breakout-v1, covshift/FourRooms-v0, or any Gymnasium id with discrete actions."""

    transitions: int
    """Exact number of transitions to collect."""

    out: Path
    """Folder of the dataset."""

    policy: tuple[str, ...] = ("uniform",)
    """Behavior policies: uniform | file:P.npy | run:DIR,epsilon=E | module:function. If several are given, each episode picks one at random."""

    share: Annotated[tuple[float, ...], optional("FLOAT …")] = ()
    """Share of episodes that picks each policy, in their order, with the sum 1; by default all are picked equally often."""

    seed: int = 0
    """Seed of the collection; the same seed gives the same data."""

    envs: int = 8
    """Copies of the environment that run side by side; another number gives other data."""

    workers: int = 1
    """Processes that collect in parallel; more are faster up to the number of cores, and the data do not depend on it."""

    options: Annotated[EnvOptions, tyro.conf.arg(name="")] = field(default_factory=EnvOptions)

    def extras(self) -> tuple[str, ...]:
        """The extras that the environment needs."""
        return extras_of_env(self.env)

    def run(self) -> None:
        """Collects, and shows progress."""
        from contextlib import closing

        from rich.console import Console

        from covshift.data.collection import Collector, Request
        from covshift.progress import counter
        from covshift.validation import check_workers

        check_workers(self.workers)
        request = Request(
            self.env,
            self.transitions,
            self.policy,
            self.seed,
            self.envs,
            self.options,
            shares=self.share,
        )
        with closing(Collector(request, self.out)) as collector:
            collector.prepare()
            if not collector.is_finished():
                size = collector.estimated_bytes() / 2**20
                print(
                    f"{self.transitions:,} transitions of {self.env}: about {size:,.1f} MiB in {self.out}"
                )
                with counter(Console(), "transitions", self.transitions) as advance:
                    collector.collect(workers=self.workers, progress=advance)
            elif other := collector.other_versions():
                print(f"Made with other versions of libraries, and used as it is: {other}")
        print(f"The dataset is complete: {self.out} (see covshift data info {self.out})")
