"""A DQN in one file, in the manner of CleanRL, with replay prioritized by the covariate shift.

    python examples/dqn_single_file.py [--steps 20000] [--no-correction]

What covshift adds to the plain script is marked with `# covshift`: μ(a|s) is stored with every step, a `RatioLearner`
learns c of the current ε-greedy policy from uniform states, and a `PrioritizedSampler` draws transitions by it.
"""

from __future__ import annotations

import argparse
import copy

import gymnasium
import numpy as np
import torch
from torch import nn

from covshift.config.training import RatioOptions
from covshift.data.samplers import PrioritizedSampler
from covshift.learners.deep import RatioLearner, ring_batch
from covshift.networks import SOFTPLUS, RatioHead, VectorTorso
from covshift.rules import epsilon_greedy_probabilities

EPSILON, DISCOUNT, BATCH, LEARNING_STARTS = 0.1, 0.99, 64, 500


def train(steps: int, *, correct: bool = True, seed: int = 0) -> list[float]:
    """Learns CartPole for so many steps, and returns the returns of its episodes."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    env = gymnasium.make("CartPole-v1")
    q_network = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
    target_network = copy.deepcopy(q_network)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-3)

    def target_policy(observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            q = target_network(torch.from_numpy(observations).float()).numpy()
        return epsilon_greedy_probabilities(q.astype(np.float64), EPSILON)

    observations = np.zeros((steps, 4), dtype=np.float32)
    arrived = np.zeros((steps, 4), dtype=np.float32)
    actions, rewards = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.float32)
    terminated, is_initial = np.zeros(steps, dtype=bool), np.zeros(steps, dtype=bool)
    mu = np.ones(steps)  # covshift: the odds of every action
    torso = VectorTorso((4,))  # covshift: the ratio has a network of its own here
    ratio = RatioLearner(torso, RatioHead(128, 128, SOFTPLUS), target_policy, RatioOptions())
    sampler = PrioritizedSampler(np.ones(steps, dtype=bool), rng, steps)  # covshift

    returns, score, starts = [], 0.0, True
    observation, _ = env.reset(seed=seed)
    for step in range(steps):
        exploration = max(EPSILON, 1.0 - step / (0.3 * steps))
        with torch.no_grad():
            q = q_network(torch.from_numpy(observation).float()).numpy()
        probabilities = epsilon_greedy_probabilities(q.astype(np.float64), exploration)
        action = int(rng.choice(2, p=probabilities))
        observations[step], actions[step], is_initial[step] = observation, action, starts
        mu[step] = probabilities[action]  # covshift
        observation, reward, done, cut, _ = env.step(action)
        arrived[step], rewards[step], terminated[step] = observation, float(reward), done
        score, starts = score + float(reward), done or cut
        if starts:
            returns.append(score)
            score = 0.0
            observation, _ = env.reset()
        sampler.slide(0, step + 1)  # covshift: a new transition has priority 1

        if step < LEARNING_STARTS:
            continue
        if correct:
            ids = sampler.sample(BATCH)  # covshift
            states = rng.integers(1, step + 1, size=BATCH)
            ratio.update(ring_batch(observations, actions, mu, is_initial, states))
            sampler.update(ids, ratio.ratio(observations[ids]))
        else:
            ids = rng.integers(step + 1, size=BATCH)
        with torch.no_grad():
            best = target_network(torch.from_numpy(arrived[ids])).max(dim=1).values
            goal = torch.from_numpy(rewards[ids]) + DISCOUNT * best * torch.from_numpy(
                ~terminated[ids]
            )
        q_values = q_network(torch.from_numpy(observations[ids]))
        chosen = q_values.gather(1, torch.from_numpy(actions[ids])[:, None])[:, 0]
        loss = nn.functional.mse_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 250 == 0:
            target_network.load_state_dict(q_network.state_dict())
    env.close()
    return returns


def main() -> None:
    """Trains, and says what the last episodes returned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--no-correction", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    returns = train(given.steps, correct=not given.no_correction, seed=given.seed)
    print(f"{len(returns)} episodes; the last 20 returned {np.mean(returns[-20:]):.1f} on average")


if __name__ == "__main__":
    main()
