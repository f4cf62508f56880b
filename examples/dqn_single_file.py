"""A DQN in one file, in the manner of CleanRL, with replay prioritized by the covariate shift.

    python examples/dqn_single_file.py [--steps 20000] [--seed 0]

It is trained twice: with uniform replay, and with replay by c. What covshift adds is marked with `# covshift`.
"""

from __future__ import annotations

import argparse
import copy

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from covshift import RatioReplay
from covshift.progress import track
from covshift.rules import epsilon_greedy_probabilities

EPSILON, DISCOUNT, BATCH, CAPACITY, LEARNING_STARTS = 0.1, 0.99, 64, 10_000, 500


def train(steps: int, *, by_ratio: bool = True, seed: int = 0) -> list[float]:
    """Learns CartPole for so many steps, and returns the returns of its episodes."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    env = gymnasium.make("CartPole-v1")
    q_network = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
    target_network = copy.deepcopy(q_network)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-3)
    replay = RatioReplay(CAPACITY, env.observation_space, env.action_space, seed=seed)  # covshift

    def probabilities(
        network: nn.Module, states: NDArray[np.float32], epsilon: float
    ) -> NDArray[np.float64]:
        with torch.no_grad():
            q = network(torch.from_numpy(states)).numpy()
        return epsilon_greedy_probabilities(q.astype(np.float64), epsilon)

    def policy(states: NDArray[np.float32]) -> NDArray[np.float64]:  # covshift: π, what it does now
        return probabilities(target_network, states, EPSILON)

    returns, score = [], 0.0
    state, _ = env.reset(seed=seed)
    label = "replay by c" if by_ratio else "uniform replay"
    for step in track(Console(), label, range(steps), steps):
        exploration = max(EPSILON, 1.0 - step / (0.3 * steps))
        mu = probabilities(q_network, state[None], exploration)[0]
        action = int(rng.choice(2, p=mu))
        arrived, reward, terminated, truncated, _ = env.step(action)
        replay.add(
            state, action, float(reward), arrived, terminated, truncated, mu[action]
        )  # covshift
        state, score = arrived, score + float(reward)
        if terminated or truncated:
            returns.append(score)
            state, score = env.reset()[0], 0.0
        if step < LEARNING_STARTS:
            continue

        if by_ratio:
            replay.update(policy, BATCH)  # covshift: without it, draws are uniform
        batch = replay.sample(BATCH)  # covshift
        with torch.no_grad():
            best = target_network(torch.from_numpy(batch.next_observations)).max(dim=1).values
            goes_on = torch.from_numpy(~batch.terminated)
            goal = torch.from_numpy(batch.rewards) + DISCOUNT * best * goes_on
        q_values = q_network(torch.from_numpy(batch.observations))
        chosen = q_values.gather(1, torch.from_numpy(batch.actions)[:, None])[:, 0]
        loss = nn.functional.mse_loss(chosen, goal)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 250 == 0:
            target_network.load_state_dict(q_network.state_dict())
    env.close()
    last = np.mean(returns[-20:])
    print(f"{label}: {len(returns)} episodes; the last 20 returned {last:.1f} on average")
    if by_ratio:
        mean, share = replay.mean_ratio, replay.effective_share
        print(f"the mean ratio E_μ[c] is {mean:.2f}, the effective share ESS/N {share:.2f}")
        if check := replay.check(policy):  # covshift: can the ratio be believed?
            print(
                f"by the replay's own episodes E_μ[c] is {check.mean_ratio:.2f}, and the calibration error is "
                f"{check.error:.2f}, of which chance makes about {check.trajectories**-0.5:.2f}"
            )
    return returns


def main() -> None:
    """Trains with and without the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for by_ratio in (False, True):
        train(given.steps, by_ratio=by_ratio, seed=given.seed)
    print("one seed shows that it works, not which is better: run more seeds to compare")


if __name__ == "__main__":
    main()
