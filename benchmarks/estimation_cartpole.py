"""What estimates from 400 CartPole episodes say about a better policy, by features, and whether the flag warns.

python benchmarks/estimation_cartpole.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import gymnasium
import numpy as np

from covshift.estimation import Logs, RandomFourier, estimate_ratio, evaluate_policy, from_arrays
from covshift.estimation.features import Affine, FeaturesLike
from covshift.validation import Dense, Vector

EPISODES, DISCOUNT = 400, 0.99


def main() -> None:
    """Prints one line per kind of features."""
    warnings.simplefilter("ignore")
    logs, _ = _run(0.6, EPISODES, seed=1)
    _, returns = _run(0.3, 1000, seed=2)
    error = returns.std() / np.sqrt(len(returns))
    print(f"{logs.num_transitions:,} transitions; true value {returns.mean():.1f} ± {error:.1f}")
    kinds: dict[str, Callable[[], FeaturesLike]] = {
        "linear in the observation": lambda: Affine.fit(logs),
        "the default": lambda: None,
        "50 Fourier features": lambda: RandomFourier.fit(logs, 50, np.random.default_rng(0)),
        "200 Fourier features": lambda: RandomFourier.fit(logs, 200, np.random.default_rng(0)),
    }
    for name, make in kinds.items():
        features = make()
        value = evaluate_policy(logs, _new, features=features, discount=DISCOUNT, replicates=20)
        found = estimate_ratio(logs, _new, ratio_discount=0.99, features=features).diagnostics
        print(
            f"{name:28} {value}; effective sample {found.ess_share:.2f}, held-out residual "
            f"{found.held_out_residual:.3f}, violation {found.violation:.2f} ± {found.violation_error:.2f}, "
            f"flag {found.flag}",
            flush=True,
        )


def _new(states: Dense) -> Dense:
    return _lean(states, 0.3)


def _lean(states: Dense, random: float) -> Dense:
    """Pushes the cart to the side to which the pole leans, except for a share of random actions."""
    chosen = (states[:, 2] + 0.5 * states[:, 3] > 0).astype(int)
    probabilities = np.full((len(states), 2), random / 2)
    probabilities[np.arange(len(states)), chosen] += 1.0 - random
    return probabilities


def _run(random: float, episodes: int, seed: int) -> tuple[Logs, Vector]:
    """Logs, and the discounted return of each episode."""
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(seed)
    rows, returns = [], []
    for episode in range(episodes):
        state, _ = env.reset(seed=100_003 * seed + episode)
        length, over = 0, False
        while not over:
            probabilities = _lean(state[None], random)[0]
            action = int(rng.random() < probabilities[1])
            after, reward, terminated, truncated, _ = env.step(action)
            rows.append((state, action, reward, after, terminated, probabilities[action], episode))
            state, over, length = after, terminated or truncated, length + 1
        returns.append((1.0 - DISCOUNT**length) / (1.0 - DISCOUNT))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return from_arrays(*columns[:5], mu=columns[5], trajectory=columns[6]), np.array(returns)


if __name__ == "__main__":
    main()
