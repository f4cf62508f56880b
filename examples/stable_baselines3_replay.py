"""Stable-Baselines3's DQN with uniform replay, prioritized replay, and replay by the covariate shift.

    pip install 'covshift[sb3]'
    python examples/stable_baselines3_replay.py [--steps 20000] [--seed 0] [--tempering 0.5]

The three runs differ in the replay buffer alone. Drawing is in proportion to c to the power `--tempering`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from rich.console import Console
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

from covshift.integrations.stable_baselines3 import PrioritizedReplayBuffer, RatioReplayBuffer
from covshift.progress import counter

BUFFERS: list[type[ReplayBuffer]] = [ReplayBuffer, PrioritizedReplayBuffer, RatioReplayBuffer]
NUM_ENVS = 4


def train(buffer: type[ReplayBuffer], steps: int, seed: int = 0, **options: float) -> DQN:
    """A DQN on four CartPoles with this replay buffer."""
    agent = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", NUM_ENVS, seed=seed),
        replay_buffer_class=buffer,  # covshift
        replay_buffer_kwargs=options,  # covshift
        buffer_size=10_000,
        learning_starts=500,
        learning_rate=1e-3,
        batch_size=64,
        gradient_steps=4,
        target_update_interval=250,
        exploration_fraction=0.3,
        seed=seed,
        device="cpu",
    )
    with counter(Console(), buffer.__name__, steps) as advance:

        def after_step(*_: Any) -> bool:
            advance(NUM_ENVS)
            return True

        return agent.learn(steps, callback=after_step)


def main() -> None:
    """Trains with each buffer, and prints what the last episodes returned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tempering", type=float, default=0.5)
    given = parser.parse_args()
    for kind in BUFFERS:
        options = {"tempering": given.tempering} if kind is RatioReplayBuffer else {}
        agent = train(kind, given.steps, given.seed, **options)
        returns = [episode["r"] for episode in agent.ep_info_buffer or []][-20:]
        print(f"{kind.__name__}: the last {len(returns)} episodes returned {np.mean(returns):.1f}")
        if isinstance(buffer := agent.replay_buffer, RatioReplayBuffer):
            mean, share = buffer.priorities.mean_ratio, buffer.priorities.effective_share
            print(f"the mean ratio E_μ[c] is {mean:.2f}, the effective share ESS/N {share:.2f}")
            if check := buffer.last_check:
                print(
                    f"by the buffer's own episodes E_μ[c] is {check.mean_ratio:.2f}, and the calibration error is "
                    f"{check.error:.2f}, of which chance makes about {check.trajectories**-0.5:.2f}"
                )
    print("one seed shows that it works, not which is better: run more seeds to compare")


if __name__ == "__main__":
    main()
