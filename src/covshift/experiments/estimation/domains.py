"""Where the estimators are compared: what a domain is, and finite problems with exact answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, final

import numpy as np

from covshift.estimation import Logs, simulate_logs
from covshift.estimation.features import FeaturesLike
from covshift.estimation.policies import PolicyLike
from covshift.estimation.population import true_average, true_value
from covshift.theory.examples import Problem, four_rooms, garnet
from covshift.theory.mdp import FiniteMDP
from covshift.validation import Dense


class Domain(Protocol):
    """A problem whose target policy lies at a distance from the behavior policy."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def discount(self) -> float:
        """γ of the value."""

    @property
    def has_average(self) -> bool:
        """Whether the true average reward is known."""

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """About `size` transitions of the behavior policy."""

    def policy(self, distance: float) -> PolicyLike:
        """(1 - distance) μ + distance π*."""

    def features(self, logs: Logs) -> FeaturesLike:
        """What linear estimators use; None for a table."""

    def truth(self, distance: float, *, average: bool) -> float:
        """The value of that policy, exact or from rollouts."""


@final
@dataclass(frozen=True)
class FiniteDomain:
    """A finite problem; continuing ones in trajectories of `length`, which start from d_μ."""

    title: str
    problem: Problem
    discount: float
    length: int
    has_average: bool = True

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """Streams of the behavior policy."""
        length = min(self.length, size // 10)
        return simulate_logs(
            self.problem.mdp, self.problem.mu, length, max(10, size // length), rng
        )

    def policy(self, distance: float) -> Dense:
        """A table."""
        return np.asarray((1.0 - distance) * self.problem.mu + distance * self.problem.pi)

    def features(self, logs: Logs) -> None:
        """A table."""

    def truth(self, distance: float, *, average: bool) -> float:
        """Exact."""
        problem = replace(self.problem, pi=self.policy(distance))
        return true_average(problem) if average else true_value(problem, self.discount)


def four_rooms_domain() -> FiniteDomain:
    """A policy that takes shortest ways, from one that does so in a third of its steps."""
    problem = four_rooms()
    mu = 2.0 / 3.0 * problem.mu + 1.0 / 3.0 * problem.pi
    return FiniteDomain("Four rooms", replace(problem, mu=mu), 0.9, 50)


def garnet_domain(seed: int = 0) -> FiniteDomain:
    """A random chain with random policies."""
    problem = garnet(np.random.default_rng(seed), 30, 4, 3)
    return FiniteDomain("Garnet", problem, 0.9, 50)


def taxi_domain(side: int = 4) -> FiniteDomain:
    """A taxi that picks up a passenger at one of two corners and takes them to the other kind of corner.

    States: cell × passenger (waiting at depot 0, waiting at depot 1, in the taxi) × destination (two). Each
    step costs 0.05, a wrong pick or drop 0.3 more, a delivery gives 1 and ends the episode. π* drives the
    shortest way and errs in 2 % of steps; μ does so in half of them.
    """
    depots = [0, side * side - 1]
    goals = [side - 1, side * (side - 1)]
    cells, size = side * side, side * side * 6
    p, r = np.zeros((size, 6, size)), np.full((size, 6), -0.05)
    best = np.zeros(size, dtype=np.int64)
    for state in range(size):
        cell, passenger, goal = state // 6, (state % 6) // 2, state % 2
        for action, move in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            row, column = cell // side + move[0], cell % side + move[1]
            inside = 0 <= row < side and 0 <= column < side
            there = row * side + column if inside else cell
            p[state, action, there * 6 + passenger * 2 + goal] = 1.0
        waits_here = passenger < 2 and cell == depots[passenger]
        p[state, 4, cell * 6 + 4 + goal if waits_here else state] = 1.0
        r[state, 4] -= 0.0 if waits_here else 0.3
        if passenger == 2 and cell == goals[goal]:
            r[state, 5] = 1.0
        else:
            p[state, 5, state] = 1.0
            r[state, 5] -= 0.3
        aim = goals[goal] if passenger == 2 else depots[passenger]
        if cell == aim:
            best[state] = 5 if passenger == 2 else 4
        elif cell // side != aim // side:
            best[state] = 1 if aim // side > cell // side else 0
        else:
            best[state] = 3 if aim % side > cell % side else 2
    d_0 = np.zeros(size)
    for cell in range(cells):
        d_0[[cell * 6 + passenger * 2 + goal for passenger in (0, 1) for goal in (0, 1)]] = 1.0
    greedy = np.eye(6)[best]
    mdp = FiniteMDP(p, r, d_0 / d_0.sum())
    pi, mu = 0.98 * greedy + 0.02 / 6, 0.5 * greedy + 0.5 / 6
    return FiniteDomain("Taxi", Problem(mdp, pi, mu, 0.95), 0.95, 1000)
