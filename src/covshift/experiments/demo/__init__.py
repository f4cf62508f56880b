"""The main job in a few minutes: train from random data, without and with the correction, and show the result."""

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


SIZES = {"small": Sizes(300_000, 20_000, 2), "smoke": Sizes(3_000, 100, 1)}

EXPERIMENT = Study(
    name="demo",
    title="Learning to act from another policy's data",
    claim="What C51 learns of MinAtar's Breakout from random play alone, without and with the correction.",
    costs={
        "small": "4 runs of 20,000 updates, about 4 min on two cores",
        "smoke": "2 runs of 100 updates, about 1 min on two cores",
    },
    function="covshift.experiments.demo.study:run",
    uses=("seeds", "workers", "engine", "ray_address"),
    needs=("games", "torch"),
)
