"""`covshift collect`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from covshift.config.environment import EnvOptions


@dataclass(frozen=True)
class Collect:
    """Run a behavior policy in an environment and store what it sees, with μ(a|s) of every action.

    The same command goes on with a collection that was interrupted, and ends with the same bytes as if it
    had not been.
    """

    env: Annotated[str, tyro.conf.Positional]
    """Environment: ALE/Pong-v5, MinAtar/Breakout-v1, covshift/FourRooms-v0, or any Gymnasium id with discrete actions."""

    transitions: int
    """How many transitions, exactly."""

    out: Path
    """Folder of the dataset."""

    policy: tuple[str, ...] = ("uniform",)
    """Behavior policies: uniform | file:P.npy | run:DIR,epsilon=E | module:function. Of several, each episode draws one."""

    seed: int = 0
    """Seed of everything."""

    envs: int = 8
    """Streams that a shard is made of; part of what the data are, unlike --workers."""

    workers: int = 1
    """Processes that make shards."""

    options: Annotated[EnvOptions, tyro.conf.arg(name="")] = field(default_factory=EnvOptions)

    def run(self) -> None:
        """Collects, with progress."""
        from contextlib import closing

        from rich.console import Console

        from covshift.data.collection import Collector, Request
        from covshift.progress import counter

        request = Request(
            self.env, self.transitions, self.policy, self.seed, self.envs, self.options
        )
        with closing(Collector(request, self.out)) as collector:
            codec = collector.prepare()
            if not collector.is_finished():
                size = collector.estimated_bytes(codec) / 2**20
                print(
                    f"{self.transitions:,} transitions of {self.env}: about {size:,.1f} MiB in {self.out}"
                )
                with counter(Console(), "transitions", self.transitions) as advance:
                    collector.collect(workers=self.workers, progress=advance)
            elif other := collector.other_versions():
                print(
                    f"It was made with other versions of libraries, and is used as it is: {other}"
                )
        print(
            f"The dataset is complete: {self.out} (look at it with covshift data info {self.out})"
        )
