"""Games on which estimators are compared; true values are means over rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from covshift.config.environment import EnvOptions
from covshift.data.policies import Function
from covshift.data.runner import Runner, follow
from covshift.envs import make_streams
from covshift.estimation import Logs, Trajectory, from_trajectories
from covshift.validation import Dense


@final
@dataclass(frozen=True, eq=False)
class GameDomain:
    """An environment with a behavior policy μ and a target policy π*.

    Args:
        behavior: μ(a|s) of a batch of states.
        target: π*(a|s) of a batch of states.
        phi: features of a batch of states.
        discount: γ of the value.
        horizon: steps after which an episode is cut; γᵗ is negligible by then.
        rollouts: episodes whose mean return is the true value.
    """

    title: str
    env: str
    behavior: Callable[[NDArray[Any]], Dense]
    target: Callable[[NDArray[Any]], Dense]
    phi: Callable[[NDArray[Any]], Dense]
    discount: float
    horizon: int
    rollouts: int
    has_average: ClassVar[bool] = False
    """Whether the true average reward is known."""
    _truths: dict[float, float] = field(default_factory=dict)

    def logs(self, size: int, rng: np.random.Generator) -> Logs:
        """About `size` transitions of the behavior policy, in whole episodes."""
        return from_trajectories(self._episodes(self.behavior, rng, transitions=size))

    def policy(self, distance: float) -> Callable[[NDArray[Any]], Dense]:
        """(1 - distance) μ + distance π*."""

        def mixed(states: NDArray[Any]) -> Dense:
            return np.asarray(
                (1.0 - distance) * self.behavior(states) + distance * self.target(states)
            )

        return mixed

    def features(self, logs: Logs) -> Callable[[NDArray[Any]], Dense]:
        """Hand-made features, the same for all data."""
        return self.phi

    def truth(self, distance: float, *, average: bool) -> float:
        """The mean discounted return of the policy at this distance; there is no average."""
        if distance not in self._truths:
            rng = np.random.default_rng(12345)
            returns = []
            for episode in self._episodes(self.policy(distance), rng, episodes=self.rollouts):
                rewards = np.asarray(episode.rewards)
                returns.append(float(self.discount ** np.arange(len(rewards)) @ rewards))
            self._truths[distance] = float(np.mean(returns))
        return self._truths[distance]

    def _episodes(
        self,
        policy: Callable[[NDArray[Any]], Dense],
        rng: np.random.Generator,
        *,
        transitions: float = np.inf,
        episodes: float = np.inf,
    ) -> list[Trajectory]:
        """Whole episodes, until there are so many transitions or episodes.

        Each of several streams stops after the episode in which it reaches its share; stopping all at once would
        favor short episodes.
        """
        done: list[Trajectory] = []
        num_streams = 16
        streams = make_streams(self.env, EnvOptions(episode_cap=self.horizon), num_streams)
        law = Function(self.title, policy, streams.num_actions)
        runner = Runner(streams, [follow(law)], list(rng.spawn(num_streams)))
        rows: list[list[tuple[Any, ...]]] = [[] for _ in range(num_streams)]
        steps, ends = np.zeros(num_streams), np.zeros(num_streams)
        for acted in runner.steps():
            enough = (steps >= transitions / num_streams) | (ends >= episodes / num_streams)
            if enough.all():
                break
            for k in np.flatnonzero(~enough | np.array([len(row) > 0 for row in rows])):
                ended = bool(acted.outcome.terminated[k])
                rows[k].append(
                    (acted.observation[k], acted.action[k], acted.outcome.reward[k], acted.mu[k])
                )
                if ended or acted.outcome.truncated[k]:
                    done.append(_trajectory(rows[k], acted.outcome.arrived[k], ended))
                    steps[k] += len(rows[k])
                    ends[k] += 1
                    rows[k] = []
        streams.close()
        return done


def cart_pole_domain(rollouts: int) -> GameDomain:
    """π* balances the pole with a steeper controller than μ; a reward of 1 per step until the pole falls."""

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
    """MinAtar's Breakout: π* follows the ball in 95 % of its steps, μ in half of them, else both act at random."""

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
    """Columns of paddle and ball, their gap and its square, bricks left, some by the ball's direction and height."""
    paddle, ball, height, down, bricks = _breakout_positions(states)
    gap = np.abs(ball - paddle)
    base = [np.ones(len(gap)), paddle / 9, ball / 9, height / 9, gap / 9, (gap / 9) ** 2]
    low = (height >= 6).astype(float)
    late = [(gap > 9 - height).astype(float), (gap == 0).astype(float)]
    falling = [*(down * column for column in base[2:6]), *(down * low * column for column in late)]
    levels = [(height == level).astype(float) for level in range(2, 9)]
    return np.column_stack([*base, bricks / 30, *late, *falling, *levels])


def _breakout_positions(states: NDArray[Any]) -> tuple[Dense, Dense, Dense, Dense, Dense]:
    """The columns of paddle and ball, the ball's row, whether it falls, and how many bricks are left."""
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
