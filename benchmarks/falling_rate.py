"""Does an Atari agent learn if its policy comes to rest? A learning rate that falls to 0, and averaged weights.

    python benchmarks/falling_rate.py GAME DATASET --out RUN [--updates 20000] [--discount 0.99] …

Trains `c51` at the scale `atari`, but with batches of 32, returns over 3 steps, and a learning rate that falls from
update to update to 0. DATASET is one that `covshift reproduce figure-2 --scale atari` collected. Prints the mean scores
of ten episodes with ε = 0.001 and 0.05, for the weights themselves and for their exponential average.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import numpy as np
import torch

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.networks import AgentNetwork
from covshift.records import RunFolder
from covshift.runs.evaluation import AgentPolicy, roll_out
from covshift.runs.launch import start_or_resume
from covshift.runs.training import Trainer

EPISODES = 10


def main() -> None:
    """Trains, and prints a line per evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("game", help="such as Seaquest")
    parser.add_argument("data", help="the folder of the dataset")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--evaluations", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.00025, help="the first one")
    parser.add_argument("--value-steps", type=int, default=3)
    parser.add_argument("--target-period", type=int, default=1000)
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--memory", type=float, default=0.999, help="of the averaged weights")
    options = parser.parse_args()
    config = make_config(
        f"ALE/{options.game}-v5",
        "c51",
        "atari",
        num_updates=options.updates,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        value_steps=options.value_steps,
        target_period=options.target_period,
        discount=options.discount,
    )
    trainer = start_or_resume(
        RunFolder(options.out), config, options.data, RuntimeOptions(threads=1), print
    )
    learner, average = trainer.learner, copy.deepcopy(trainer.learner.network)
    for update in range(1, options.updates + 1):
        left = 1 - (update - 1) / options.updates
        learner.optimizer.param_groups[0]["lr"] = options.learning_rate * left
        trainer.step()
        memory = min(options.memory, 1 - 1 / (1 + update))
        with torch.no_grad():
            pairs = zip(average.parameters(), learner.network.parameters(), strict=True)
            for mean, weight in pairs:
                mean.lerp_(weight, 1 - memory)
        if update % (options.updates // options.evaluations) == 0:
            for name, network in (("weights", learner.network), ("average", average)):
                scores = [score(trainer, network, epsilon) for epsilon in (0.001, 0.05)]
                print(f"{options.game} {update} {name}: {scores[0]:.1f}, ε = 0.05: {scores[1]:.1f}")
    trainer.close()


def score(trainer: Trainer, network: AgentNetwork, epsilon: float) -> float:
    """The mean score of a few episodes."""
    policy = AgentPolicy(network, trainer.learner.support, epsilon)
    rng = np.random.default_rng(trainer.update)
    config = trainer.config
    episodes = roll_out(policy, config.env, config.environment, EPISODES, rng)
    return float(np.mean([episode.score for episode in episodes]))


if __name__ == "__main__":
    main()
