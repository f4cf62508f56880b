"""Errors of `dr` by features of the state, on eight domains whose observations are vectors.

    python benchmarks/estimation_features.py [--seeds 2] [--first-seed 0]

The error is the root mean square over datasets of estimate - truth, divided by what is at stake, |J(π) - J(μ)|. True values
are means over rollouts; those of finite MDPs are exact.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from covshift.errors import InputError
from covshift.estimation import Logs, RandomFourier, evaluate_policy, from_arrays, simulate_logs
from covshift.estimation.features import Affine, FeaturesLike
from covshift.estimation.population import true_value
from covshift.experiments.estimation.games import GameDomain, breakout_domain, cart_pole_domain
from covshift.theory.examples import Problem, four_rooms, garnet
from covshift.validation import Dense

PolicyFunction = Callable[[NDArray[Any]], Dense]


class Domain(Protocol):
    """A problem with a behavior policy μ, at the distance 0, and policies at a distance up to 1 from it."""

    @property
    def discount(self) -> float:
        """γ."""

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """About so many transitions of μ."""

    def policy(self, distance: float) -> PolicyFunction:
        """The policy at this distance."""

    def truth(self, distance: float, *, average: bool) -> float:
        """Its value."""


@dataclass(frozen=True)
class Observed:
    """A finite problem whose states are seen as random vectors of six entries."""

    problem: Problem
    seen: Dense
    discount: float = 0.95

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """About so many transitions of μ."""
        logs = simulate_logs(self.problem.mdp, self.problem.mu, 50, size // 50, rng)
        before, after = self.seen[logs.states()], self.seen[logs.next_states()]
        return replace(logs, read_states=before.__getitem__, read_next_states=after.__getitem__)

    def policy(self, distance: float) -> PolicyFunction:
        """The policy at this distance, with probabilities of all actions."""
        table = (1.0 - distance) * self.problem.mu + distance * self.problem.pi

        def act(states: NDArray[Any]) -> Dense:
            number = ((states[:, None] - self.seen) ** 2).sum(axis=2).argmin(axis=1)
            return np.asarray(table[number])

        return act

    def truth(self, distance: float, *, average: bool) -> float:
        """Its value."""
        table = (1.0 - distance) * self.problem.mu + distance * self.problem.pi
        return true_value(replace(self.problem, pi=table), self.discount)


class HelpDesk:
    """The desk of the tutorial with up to 12 requests and a trend of arrivals that is seen too."""

    discount, hours = 0.95, 100

    def policy(self, distance: float) -> PolicyFunction:
        """The policy at this distance, with probabilities of all actions."""

        def act(states: NDArray[Any]) -> Dense:
            new = np.where(states.sum(axis=1) >= 3.0, 0.9, 0.1)
            two = 0.4 * (1.0 - distance) + distance * new
            return np.column_stack([1.0 - two, two])

        return act

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """About so many transitions of μ."""
        return self._run(self.policy(0.0), size // self.hours, rng)

    def truth(self, distance: float, *, average: bool) -> float:
        """Its value."""
        logs = self._run(self.policy(distance), 5000, np.random.default_rng(1))
        by_hour = logs.reward.reshape(-1, self.hours).mean(axis=0)
        return float(self.discount ** np.arange(self.hours) @ by_hour)

    def _run(self, policy: PolicyFunction, weeks: int, rng: np.random.Generator) -> Logs:
        queue, trend = rng.integers(0, 7, weeks), rng.standard_normal(weeks)
        rows = []
        for _ in range(self.hours):
            states = np.column_stack([queue, trend])
            chances = policy(states)
            agents = (rng.random(weeks) < chances[:, 1]).astype(int)
            arrived = rng.poisson(2.2 * np.exp(0.3 * trend))
            queue = np.clip(queue + arrived - rng.binomial(2 + 2 * agents, 0.7), 0, 12)
            trend = 0.8 * trend + 0.6 * rng.standard_normal(weeks)
            mu = chances[np.arange(weeks), agents]
            rows.append(
                (states, agents, -queue - 1.5 * agents, np.column_stack([queue, trend]), mu)
            )
        states, actions, rewards, after, mu = (np.stack(c, axis=1) for c in zip(*rows, strict=True))
        return from_arrays(
            states.reshape(-1, 2), actions.ravel(), rewards.ravel(), after.reshape(-1, 2),
            np.zeros(actions.size, dtype=bool), mu=mu.ravel(),
            trajectory=np.repeat(np.arange(weeks), self.hours),
        )  # fmt: skip


def controller(choose: Callable[[Any], Any], actions: int, random: float) -> PolicyFunction:
    """Takes the chosen action, except for a share of random ones."""

    def act(states: NDArray[Any]) -> Dense:
        return np.asarray((1.0 - random) * np.eye(actions)[choose(states)] + random / actions)

    return act


def domains() -> dict[str, tuple[Domain, int, float]]:
    """By name: a domain, the transitions per dataset, and the distance of π."""

    def lean(s: Any) -> Any:
        return (s[:, 2] + 0.5 * s[:, 3] > 0).astype(int)

    def swing(s: Any) -> Any:
        return np.where(s[:, 5] > 0, 2, 0)

    def pump(s: Any) -> Any:
        return np.where(s[:, 1] >= 0, 2, 0)

    def game(env: str, choose: Any, actions: int, old: float, new: float, *rest: Any) -> GameDomain:
        mu, pi = (controller(choose, actions, share) for share in (old, new))
        return GameDomain(env, env, mu, pi, lambda s: s, *rest)

    rooms = four_rooms()
    rooms = replace(rooms, mu=2.0 / 3.0 * rooms.mu + 1.0 / 3.0 * rooms.pi)
    random = garnet(np.random.default_rng(0), 30, 4, 3)
    seen = [
        np.random.default_rng(seed).standard_normal((len(p.d_mu), 6))
        for seed, p in ((1, rooms), (2, random))
    ]
    return {
        "CartPole": (game("CartPole-v1", lean, 2, 0.6, 0.3, 0.99, 500, 600), 15_000, 1.0),
        "CartPole, smooth": (cart_pole_domain(1000), 6_000, 0.5),
        "Acrobot": (game("Acrobot-v1", swing, 3, 0.7, 0.2, 0.98, 300, 150), 15_000, 0.5),
        "MountainCar": (game("MountainCar-v0", pump, 3, 0.5, 0.1, 0.98, 300, 300), 10_000, 0.5),
        "help desk": (HelpDesk(), 6_000, 1.0),
        "Breakout": (breakout_domain(2000), 5_000, 0.5),
        "Garnet": (Observed(random, seen[1]), 6_000, 0.5),
        "four rooms": (Observed(rooms, seen[0]), 6_000, 0.5),
    }


def cells(logs: Logs, count: int) -> FeaturesLike:
    """Indicators of cells by k-means of the standardized observation."""
    x = Affine.fit(logs)
    states = x(logs.states())[:, 1:]
    some = states[:: -(-len(states) // 5000)]
    count = min(count, len(np.unique(some, axis=0)))
    model = KMeans(count, n_init=1, max_iter=15, random_state=0).fit(some)
    return lambda s: np.eye(count)[model.predict(x(s)[:, 1:])]


def waves(logs: Logs, count: int, share: float) -> FeaturesLike:
    """Fourier features whose bandwidth is this share of √d."""
    entries = np.prod(logs.states(np.zeros(1, dtype=np.int64)).shape[1:])
    return RandomFourier.fit(logs, count, np.random.default_rng(0), share * np.sqrt(entries))


CANDIDATES: dict[str, Callable[[Logs], FeaturesLike]] = {
    "affine": Affine.fit,
    "150 cells": lambda logs: cells(logs, 150),
    "100 waves, 0.5": lambda logs: waves(logs, 100, 0.5),
    "200 waves, 0.3": lambda logs: waves(logs, 200, 0.3),
    "200 waves, 0.5": lambda logs: waves(logs, 200, 0.5),
    "200 waves, 0.8": lambda logs: waves(logs, 200, 0.8),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| domain | " + " | ".join(CANDIDATES) + " |\n|---|" + "---:|" * len(CANDIDATES))
    seconds = dict.fromkeys(CANDIDATES, 0.0)
    for title, (domain, size, distance) in domains().items():
        truth, old = (domain.truth(d, average=False) for d in (distance, 0.0))
        errors: dict[str, list[float]] = {name: [] for name in CANDIDATES}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            logs = domain.logs(size, np.random.default_rng(seed))
            for name, make in CANDIDATES.items():
                started = time.process_time()
                try:
                    found = evaluate_policy(
                        logs, domain.policy(distance), features=make(logs),
                        discount=domain.discount, interval=None,
                    ).value  # fmt: skip
                except InputError:
                    found = float("nan")
                seconds[name] += time.process_time() - started
                errors[name].append((found - truth) / abs(truth - old))
        cell = [f"{np.sqrt(np.mean(np.square(e))):.2f}" for e in errors.values()]
        print(f"| {title} | {' | '.join(cell)} |", flush=True)
    print("| seconds | " + " | ".join(f"{s:.0f}" for s in seconds.values()) + " |")


if __name__ == "__main__":
    main()
