"""Finite problems on which estimators are compared, with exact values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from covshift.estimation import Logs, simulate_logs
from covshift.estimation.population import true_average, true_value
from covshift.theory.examples import Problem, four_rooms, garnet
from covshift.theory.mdp import FiniteMDP
from covshift.validation import Dense


@final
@dataclass(frozen=True)
class FiniteDomain:
    """A finite problem with a behavior policy μ and a target policy π*.

    Args:
        problem: the MDP with π* and μ; if it continues forever, trajectories start from d_μ.
        discount: γ of the value.
        length: steps of a trajectory.
    """

    title: str
    problem: Problem
    discount: float
    length: int
    has_average: ClassVar[bool] = True
    """Whether the true average reward is known."""

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """About `size` transitions of the behavior policy."""
        length = min(self.length, size // 10)
        return simulate_logs(
            self.problem.mdp, self.problem.mu, length, max(10, size // length), rng
        )

    def policy(self, distance: float) -> Dense:
        """(1 - distance) μ + distance π*, as a table."""
        return np.asarray((1.0 - distance) * self.problem.mu + distance * self.problem.pi)

    def features(self, logs: Logs) -> None:
        """None: estimators use a table."""

    def truth(self, distance: float, *, average: bool) -> float:
        """The exact value of the policy at this distance, or its average reward."""
        problem = replace(self.problem, pi=self.policy(distance))
        return true_average(problem) if average else true_value(problem, self.discount)


def four_rooms_domain() -> FiniteDomain:
    """π* takes shortest paths, μ does so in a third of its steps."""
    problem = four_rooms()
    mu = 2.0 / 3.0 * problem.mu + 1.0 / 3.0 * problem.pi
    return FiniteDomain("Four rooms", replace(problem, mu=mu), 0.9, 50)


def garnet_domain() -> FiniteDomain:
    """A random MDP with random policies."""
    problem = garnet(np.random.default_rng(0), 30, 4, 3)
    return FiniteDomain("Garnet", problem, 0.9, 50)


def taxi_domain(side: int = 4) -> FiniteDomain:
    """A taxi that picks up a passenger at one of two corners and takes them to one of the two others.

    States: cell × passenger (waiting at depot 0, waiting at depot 1, in the taxi) × destination (two). Each
    step costs 0.05, a wrong pick-up or drop-off 0.3 more, a delivery gives 1 and ends the episode. π* takes the
    shortest path with random actions in 2 % of steps; μ acts at random in half of them.
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
