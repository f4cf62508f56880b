"""Does an Atari agent learn if its policy comes to rest? A learning rate that falls to 0, and averaged weights.

    python benchmarks/falling_rate.py GAME DATASET --out RUN [num_updates=40000 discount=0.97 …]

Trains `c51` at the scale `atari` (seed 0), but with 20 000 updates of 32, returns over 3 steps, a target period of 1000,
and a learning rate that falls from 0.00025 to 0. DATASET is one that `covshift reproduce figure-2 --scale atari`
collected. Prints the mean scores of ten episodes after the last update, with ε = 0.001 and 0.05, for the weights
themselves and for their exponential average.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import numpy as np
from rich.console import Console

from covshift.config.presets import make_config
from covshift.config.settings import parse_settings
from covshift.config.training import RuntimeOptions
from covshift.networks import AgentNetwork
from covshift.progress import counter
from covshift.records import RunFolder
from covshift.runs.evaluation import AgentPolicy, roll_out
from covshift.runs.launch import start_or_resume
from covshift.runs.training import Trainer

EPISODES = 10
SETTINGS = [
    "num_updates=20000",
    "batch_size=32",
    "learning_rate=0.00025",
    "value_steps=3",
    "target_period=1000",
]


def main() -> None:
    """Trains, and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("game", help="such as Seaquest")
    parser.add_argument("data", help="the folder of the dataset")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--memory", type=float, default=0.999, help="of the averaged weights")
    parser.add_argument("settings", nargs="*", help="other settings: key=value")
    options = parser.parse_intermixed_args()
    settings = parse_settings([*SETTINGS, *options.settings])
    config = make_config(f"ALE/{options.game}-v5", "c51", "atari", **settings)
    runtime = RuntimeOptions(threads=1)
    trainer = start_or_resume(RunFolder(options.out), config, options.data, runtime, print)
    network = trainer.learner.network
    average = copy.deepcopy(network)
    fit, optimizer = config.optimization, trainer.learner.optimizer
    with counter(Console(), "updates", fit.num_updates) as advance:
        for update in range(fit.num_updates):
            optimizer.param_groups[0]["lr"] = fit.learning_rate * (1 - update / fit.num_updates)
            trainer.step()
            # The first updates have a plain mean, so that the random start is forgotten.
            share = max(1 - options.memory, 1 / (2 + update))
            for mean, weight in zip(average.parameters(), network.parameters(), strict=True):
                mean.data.lerp_(weight.data, share)
            advance(1)
    trainer.close()
    for name, played in (("weights", network), ("average", average)):
        scores = [score(trainer, played, epsilon) for epsilon in (0.001, 0.05)]
        print(f"{options.game}, {name}: {scores[0]:.1f}, with ε = 0.05 {scores[1]:.1f}")


def score(trainer: Trainer, network: AgentNetwork, epsilon: float) -> float:
    """The mean score of a few episodes."""
    policy = AgentPolicy(network, trainer.learner.support, epsilon)
    config, rng = trainer.config, np.random.default_rng(trainer.update)
    episodes = roll_out(policy, config.env, config.environment, EPISODES, rng)
    return float(np.mean([episode.score for episode in episodes]))


if __name__ == "__main__":
    main()
