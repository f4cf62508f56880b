"""Where the estimators are compared: finite problems with exact answers, and two games with rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.config.environment import EnvOptions
from covshift.data.policies import Function
from covshift.data.recording import Runner
from covshift.envs import make_streams
from covshift.estimation import Logs, Trajectory, from_trajectories, simulate_logs
from covshift.estimation.features import FeaturesLike
from covshift.estimation.policies import PolicyLike
from covshift.estimation.population import true_average, true_value
from covshift.theory.examples import Problem, four_rooms, garnet
from covshift.theory.mdp import FiniteMDP
from covshift.theory.validation import Dense


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


@final
@dataclass(frozen=True, eq=False)
class GameDomain:
    """An environment with rollouts of `horizon` steps at most, past which γᵗ is negligible."""

    title: str
    env: str
    behavior: Callable[[NDArray[Any]], Dense]
    target: Callable[[NDArray[Any]], Dense]
    phi: Callable[[NDArray[Any]], Dense]
    discount: float
    horizon: int
    rollouts: int
    has_average: bool = False
    _truths: dict[float, float] = field(default_factory=dict)

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """Episodes from the start, cut at the horizon."""
        return from_trajectories(self._episodes(self.behavior, size, None, rng))

    def policy(self, distance: float) -> Callable[[NDArray[Any]], Dense]:
        """A mixture of both functions."""

        def mixed(states: NDArray[Any]) -> Dense:
            return np.asarray(
                (1.0 - distance) * self.behavior(states) + distance * self.target(states)
            )

        return mixed

    def features(self, logs: Logs) -> Callable[[NDArray[Any]], Dense]:
        """Hand-made."""
        return self.phi

    def truth(self, distance: float, *, average: bool) -> float:
        """The mean discounted return of many rollouts."""
        if distance not in self._truths:
            rng = np.random.default_rng(12345)
            returns = [
                float(
                    self.discount ** np.arange(len(np.asarray(e.rewards))) @ np.asarray(e.rewards)
                )
                for e in self._episodes(self.policy(distance), None, self.rollouts, rng)
            ]
            self._truths[distance] = float(np.mean(returns))
        return self._truths[distance]

    def _episodes(
        self,
        policy: Callable[[NDArray[Any]], Dense],
        transitions: int | None,
        episodes: int | None,
        rng: np.random.Generator,
    ) -> list[Trajectory]:
        """Whole episodes; each stream ends with the one in which it reaches its share.

        To stop all streams at once would favor short episodes.
        """
        done: list[Trajectory] = []
        num_streams = 16
        streams = make_streams(self.env, EnvOptions(episode_cap=self.horizon), num_streams)
        law = Function(self.title, policy, streams.num_actions)
        runner = Runner(streams, [law], list(rng.spawn(num_streams)), 1)
        rows: list[list[tuple[Any, ...]]] = [[] for _ in range(num_streams)]
        steps, ends = np.zeros(num_streams), np.zeros(num_streams)
        for acted in runner.steps():
            enough = steps >= (transitions or np.inf) / num_streams
            enough |= ends >= (episodes or np.inf) / num_streams
            if enough.all():
                break
            for k in np.flatnonzero(~enough | np.array([len(row) > 0 for row in rows])):
                ended = bool(acted.terminated[k])
                rows[k].append(
                    (acted.observation[k], acted.action[k], acted.reward[k], acted.mu[k])
                )
                if ended or acted.truncated[k]:
                    done.append(_trajectory(rows[k], acted.arrived[k], ended))
                    steps[k] += len(rows[k])
                    ends[k] += 1
                    rows[k] = []
        streams.close()
        return done


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


def cart_pole_domain(rollouts: int) -> GameDomain:
    """Two controllers of the pole; a reward of 1 for each step it stands, terminated when it falls."""

    def controller(sharpness: float) -> Callable[[NDArray[Any]], Dense]:
        def act(states: NDArray[Any]) -> Dense:
            lean = states[:, 2] + 0.3 * states[:, 3] + 0.05 * states[:, 1]
            right = 1.0 / (1.0 + np.exp(-sharpness * lean.astype(np.float64)))
            return np.column_stack([1.0 - right, right])

        return act

    return GameDomain(
        "CartPole", "CartPole-v1", controller(1.0), controller(12.0), cart_pole_features, 0.95, 150,
        rollouts,
    )  # fmt: skip


def cart_pole_features(states: NDArray[Any]) -> Dense:
    """1, the state, its squares and products, and how near the pole is to falling."""
    x = states.astype(np.float64) / np.array([2.4, 2.0, 0.21, 2.5])
    pairs = [x[:, i] * x[:, j] for i in range(4) for j in range(i, 4)]
    falling = [np.abs(x[:, 2] + 0.5 * x[:, 3]) ** k for k in (1, 3)]
    near = [np.exp(-4.0 * (1.0 - np.minimum(np.abs(x[:, k]), 1.0))) for k in (0, 2)]
    return np.column_stack([np.ones(len(x)), x, *pairs, *falling, *near])


def breakout_domain(rollouts: int) -> GameDomain:
    """MinAtar's Breakout: π* follows the ball, μ does so in half of its steps."""

    def follower(care: float) -> Callable[[NDArray[Any]], Dense]:
        def act(states: NDArray[Any]) -> Dense:
            paddle, ball, *_ = _breakout_positions(states)
            choice = np.where(ball < paddle, 1, np.where(ball > paddle, 2, 0))
            return np.asarray(care * np.eye(3)[choice] + (1.0 - care) / 3.0)

        return act

    return GameDomain(
        "Breakout (MinAtar)", "MinAtar/Breakout-v1", follower(0.5), follower(0.95), breakout_features,
        0.95, 150, rollouts,
    )  # fmt: skip


def breakout_features(states: NDArray[Any]) -> Dense:
    """1, places of paddle and ball, their distance and its squares, by where the ball goes and how high."""
    paddle, ball, height, down, bricks = _breakout_positions(states)
    gap = np.abs(ball - paddle)
    base = [
        np.ones(len(gap)),
        paddle / 9,
        ball / 9,
        height / 9,
        gap / 9,
        (gap / 9) ** 2,
        bricks / 30,
    ]
    low = (height >= 6).astype(float)
    late = [(gap > 9 - height).astype(float), (gap == 0).astype(float)]
    columns = [
        *base,
        *late,
        *(down * column for column in base[2:6]),
        *(down * low * c for c in late),
    ]
    columns += [(height == level).astype(float) for level in range(2, 9)]
    return np.column_stack(columns)


def _breakout_positions(states: NDArray[Any]) -> tuple[Dense, Dense, Dense, Dense, Dense]:
    """Columns of paddle and ball, row of the ball, whether it falls, and how many bricks are left."""
    grid = states.astype(np.float64)
    columns, rows = np.arange(10.0), np.arange(10.0)
    paddle = grid[:, :, :, 0].max(axis=1) @ columns
    ball = grid[:, :, :, 1].max(axis=1) @ columns
    height = grid[:, :, :, 1].max(axis=2) @ rows
    before = grid[:, :, :, 2].max(axis=2) @ rows
    return paddle, ball, height, (height > before).astype(float), grid[:, :, :, 3].sum(axis=(1, 2))


def _trajectory(rows: list[tuple[Any, ...]], last: NDArray[Any], ended: bool) -> Trajectory:
    observations, actions, rewards, mu = zip(*rows, strict=True)
    return Trajectory(
        np.stack([*observations, last]), np.array(actions), np.array(rewards), ended, np.array(mu)
    )
