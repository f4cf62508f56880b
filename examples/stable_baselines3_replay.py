"""Stable-Baselines3's DQN with a replay buffer that draws by the covariate shift.

    pip install stable-baselines3
    python examples/stable_baselines3_replay.py [--steps 20000]

`RatioReplayBuffer` is a replay buffer like any other to DQN. It keeps μ(a|s) beside each step, learns c of the agent's
current ε-greedy policy each time it is asked for a batch, and draws the batch in proportion to it.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer

from covshift.config.training import RatioOptions
from covshift.data.samplers import PrioritizedSampler, UniformSampler
from covshift.learners.deep import RatioLearner, ring_batch
from covshift.networks import SOFTPLUS, RatioHead, VectorTorso
from covshift.rules import epsilon_greedy_probabilities

TARGET_EPSILON = 0.1


class RatioReplayBuffer(ReplayBuffer):
    """Draws transitions by max(c(s), floor); one environment, vectors as observations."""

    model: DQN  # set after the agent is made, since each needs the other

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        size, shape = self.buffer_size, self.obs_shape
        self.mu = np.ones(size)
        self.is_initial = np.zeros(size, dtype=bool)
        self.starts = True
        torso = VectorTorso(tuple(int(side) for side in shape))
        self.ratio = RatioLearner(
            torso, RatioHead(128, 128, SOFTPLUS), self.target_policy, RatioOptions()
        )
        rng = np.random.default_rng(0)
        self.sampler = PrioritizedSampler(np.ones(size, dtype=bool), rng, size)
        self.rng = rng

    def target_policy(self, observations: np.ndarray) -> np.ndarray:
        """π, whose ratio is learned: ε-greedy on the agent's target network."""
        with torch.no_grad():
            q = self.model.q_net_target(torch.from_numpy(observations).float()).numpy()
        return epsilon_greedy_probabilities(q.astype(np.float64), TARGET_EPSILON)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Adds a step with the odds that the agent's exploration gave it."""
        with torch.no_grad():
            q = self.model.q_net(torch.from_numpy(np.asarray(obs)).float()).numpy()
        # The agent has counted this step already.
        random = self.model.num_timesteps <= self.model.learning_starts
        exploration = 1.0 if random else self.model.exploration_rate
        probabilities = epsilon_greedy_probabilities(q.astype(np.float64), exploration)
        self.mu[self.pos] = probabilities[0, int(np.asarray(action).ravel()[0])]
        self.is_initial[self.pos] = self.starts
        self.starts = bool(np.asarray(done).ravel()[0])
        super().add(obs, next_obs, action, reward, done, infos)
        if self.full:
            raise RuntimeError("this example does not wrap around: give buffer_size the whole run")
        self.sampler.slide(0, self.pos)

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Learns the ratio from uniform states, then draws transitions by it."""
        observations, actions = self.observations[:, 0], self.actions[:, 0, 0]
        eligible = np.arange(self.buffer_size) < self.pos
        states = UniformSampler(eligible, self.rng, (1, self.pos)).sample(batch_size)
        self.ratio.update(ring_batch(observations, actions, self.mu, self.is_initial, states))
        ids = self.sampler.sample(batch_size)
        self.sampler.update(ids, self.ratio.ratio(observations[ids]))
        return self._get_samples(ids, env=env)


def train(steps: int, seed: int = 0) -> DQN:
    """A DQN on CartPole with the buffer."""
    agent = DQN(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        replay_buffer_class=RatioReplayBuffer,
        buffer_size=steps + 1,
        learning_starts=200,
        train_freq=4,
        target_update_interval=250,
        learning_rate=1e-3,
        batch_size=64,
        seed=seed,
        device="cpu",
    )
    buffer = agent.replay_buffer
    assert isinstance(buffer, RatioReplayBuffer)
    buffer.model = agent
    return agent.learn(steps)


def main() -> None:
    """Trains, and says what the last episodes returned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    given = parser.parse_args()
    agent = train(given.steps)
    returns = [episode["r"] for episode in agent.ep_info_buffer or []]
    print(f"the last {len(returns)} episodes returned {np.mean(returns):.1f} on average")


if __name__ == "__main__":
    main()
