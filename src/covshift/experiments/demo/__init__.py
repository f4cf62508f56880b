"""The main jobs in a few minutes: evaluate a policy whose value is known, and train from random play."""

from typing import NamedTuple

from covshift.experiments.experiment import Study


class Sizes(NamedTuple):
    """How large the demo is.

    Attributes:
        transitions: of random play to learn from.
        updates: of each run.
        seeds: runs of each of the two agents.
    """

    transitions: int
    updates: int
    seeds: int


SIZES = {"small": Sizes(300_000, 10_000, 3), "smoke": Sizes(3_000, 100, 1)}

EXPERIMENT = Study(
    name="demo",
    title="Learning to act from another policy's data",
    claim="A policy's value from random steps beside the exact one, and what C51 learns of Breakout from random play.",
    costs={
        "small": "6 runs of 10,000 updates, about 4 min on two cores",
        "smoke": "2 runs of 100 updates, about 1 min on two cores",
    },
    function="covshift.experiments.demo.study:run",
    uses=("seeds", "workers", "engine", "ray_address"),
    needs=("games", "torch"),
)
