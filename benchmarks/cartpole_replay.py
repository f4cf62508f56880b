"""CartPole's replay drawn by c: is c right, what does it draw, and what does it do to the score?

    python benchmarks/cartpole_replay.py [--seeds 10 11 … 17] [--steps 20000] [--sides uniform c …]

Stable-Baselines3's DQN is trained with the settings of `examples/stable_baselines3_replay.py` and with different replays,
interleaved by seed. The simulator can run π from any state, so that E_μ[c f] is known for every function f of states
without a learned ratio (B6). It is compared with the learned one four times in the second half of each run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

from covshift.integrations.stable_baselines3 import RatioReplayBuffer
from covshift.progress import counter
from covshift.rules import epsilon_greedy_probabilities, ratio_moment

NUM_ENVS, COPY_STEPS, DISCOUNT = 4, 250, 0.99
ROLLOUTS, ROLLOUT_STEPS = 256, 459
"""Simulated episodes from each kind of start; γ̂ = 0.99 leaves a hundredth of Σ γ̂ᵗ after these steps."""

RANDOM = np.exp(0.7 * np.random.default_rng(0).standard_normal(10_000))
"""Priorities by slot that have nothing to do with the states; their ESS/N is exp(-0.7²) = 0.61, about that of c here."""

COLUMNS = (
    "last 20", "second half", "Q - return", "mean c", "exact", "error", "logged", "chance", "ESS/N",
    "ends drawn", "risk by c", "risk exact",
)  # fmt: skip
"""What is printed for each run.

last 20, second half: mean return of the last 20 episodes, and of all episodes in the second half of the run.
Q - return: largest Q at starts minus the discounted return of the greedy policy from there.
mean c, exact, error: E_μ[c] as learned, as simulated, and their difference over the simulated one.
logged, chance: `ratio/calibration_error`, and what chance alone makes of it.
ESS/N: of the draws.
ends drawn: probability to draw a step that failed, over the share of such steps in the replay.
risk by c, risk exact: E_μ[c f]/(E_μ[c] E_μ[f]) as learned and as simulated, where f is the share of actions that fail at once.
"""

Array = NDArray[np.float64]
States = NDArray[np.float32]


class Side(NamedTuple):
    """A replay.

    Attributes:
        options: arguments of `RatioReplayBuffer`; None is the uniform replay of Stable-Baselines3.
        copies: updates of the ratio between copies to its target network.
        uniform_share: share of draws that ignore c.
        priority: changes the priorities of steps, given their slots and whether each failed.
        is_exact: draw by the ratio of simulated episodes of π and not by the learned one.
    """

    options: dict[str, float] | None
    copies: int = 250
    uniform_share: float = 0.0
    priority: Callable[[NDArray[np.int64], Array, NDArray[np.bool_]], Array] | None = None
    is_exact: bool = False


def keep_ends(_: NDArray[np.int64], priorities: Array, is_end: NDArray[np.bool_]) -> Array:
    """Draws steps that failed as often as uniform replay does."""
    return np.where(is_end, 1.0, priorities)


def at_random(slots: NDArray[np.int64], *_: Any) -> Array:
    """As unequal as c, without regard to the states."""
    return np.asarray(RANDOM[slots])


FULL = {"tempering": 1.0}
SIDES = {
    "uniform": Side(None),
    "tempering 0": Side({"tempering": 0.0}),
    "√c": Side({"tempering": 0.5}),
    "c": Side(FULL),
    "c, copies every 25": Side(FULL, copies=25),
    "c, also 4 × step size": Side(FULL | {"ratio_learning_rate": 0.001}, copies=25),
    "c, half uniform": Side(FULL, uniform_share=0.5),
    "c, ends kept": Side(FULL, priority=keep_ends),
    "random": Side(FULL, priority=at_random),
    "c, γ̂ = 0.9": Side(FULL | {"ratio_discount": 0.9}),
    "c, ε = 0.5": Side(FULL | {"target_epsilon": 0.5}),
    "exact c": Side(FULL, is_exact=True),
}


def main() -> None:
    """Trains every side with every seed; prints a line for each run, and the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 18)))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=150)
    found: dict[str, list[Array]] = {name: [] for name in given.sides}
    with counter(console, "runs", len(given.seeds) * len(given.sides), steady=True) as advance:
        for seed in given.seeds:
            for name in given.sides:
                found[name].append(run(SIDES[name], given.steps, seed))
                numbers = zip(COLUMNS, found[name][-1], strict=True)
                told = ", ".join(f"{column} {value:.2f}" for column, value in numbers)
                console.print(f"seed {seed}, {name}: {told}", soft_wrap=True)
                advance(1)
    table = Table("side", "", "- first side", *COLUMNS)
    for name, rows in found.items():
        values = np.array(rows)
        first = np.array(found[given.sides[0]])
        values = np.column_stack([values[:, 0] - first[:, 0], values])
        table.add_row(name, "mean", *(f"{value:.2f}" for value in values.mean(axis=0)))
        if len(rows) > 1:
            errors = values.std(axis=0, ddof=1) / np.sqrt(len(rows))
            table.add_row("", "± s.e.", *(f"{error:.2f}" for error in errors))
    console.print(table)


def run(side: Side, steps: int, seed: int) -> Array:
    """Trains one agent and returns its columns; of what is measured four times it takes the median."""
    agent = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", NUM_ENVS, seed=seed),
        replay_buffer_class=ReplayBuffer if side.options is None else RatioReplayBuffer,
        replay_buffer_kwargs=side.options,
        buffer_size=10_000,
        learning_starts=500,
        learning_rate=1e-3,
        batch_size=64,
        gradient_steps=4,
        target_update_interval=COPY_STEPS,
        exploration_fraction=0.3,
        stats_window_size=steps,
        seed=seed,
        device="cpu",
    )
    refresh = None
    if isinstance(buffer := agent.replay_buffer, RatioReplayBuffer):
        buffer.priorities.learner.target_updates = side.copies
        buffer.priorities.sampler.uniform_share = side.uniform_share
        if side.priority is not None:
            change_priorities(buffer, side.priority)
        if side.is_exact:
            refresh = exact_priorities(agent, buffer)
    measured: list[Array] = []
    episodes = 0

    def after_step(*_: Any) -> bool:
        nonlocal episodes
        now = agent.num_timesteps
        if now == steps // 2:
            episodes = len(agent.ep_info_buffer or [])
        elif now > steps // 2 and now % (steps // 8) == 0:
            measured.append(measure(agent, seed))
        # The agent has just copied its network to π.
        if refresh is not None and now > 500 and now // NUM_ENVS % (COPY_STEPS // NUM_ENVS) == 1:
            refresh()
        return True

    agent.learn(steps, callback=after_step)
    returns = [episode["r"] for episode in agent.ep_info_buffer or []]
    scores = [np.mean(returns[-20:]), np.mean(returns[episodes:])]
    return np.append(scores, np.median(measured, axis=0))


def change_priorities(
    buffer: RatioReplayBuffer,
    change: Callable[[NDArray[np.int64], Array, NDArray[np.bool_]], Array],
) -> None:
    """Lets the buffer's sampler store changed priorities."""
    sampler, update = buffer.priorities.sampler, buffer.priorities.sampler.update

    def changed(ids: ArrayLike, priorities: ArrayLike) -> None:
        slots = np.asarray(ids) % buffer.rewards.size
        update(ids, change(slots, np.asarray(priorities), failed(buffer)[slots]))

    setattr(sampler, "update", changed)  # noqa: B010


def exact_priorities(agent: DQN, buffer: RatioReplayBuffer) -> Callable[[], None]:
    """Draws by visits of π in the simulator over visits in the replay, by cells of states; returns what renews them.

    Steps that have come since have priority 1, the mean.
    """
    priorities, rng, known = buffer.priorities, np.random.default_rng(0), 0
    update, quantiles = priorities.sampler.update, (0.02, 0.25, 0.5, 0.75, 0.98)

    def only_new(ids: ArrayLike, _: ArrayLike) -> None:
        new = np.asarray(ids)[np.asarray(ids) >= known]
        update(new, np.ones(len(new)))

    def refresh() -> None:
        nonlocal known
        lo, known = priorities.sampler.window
        ids = np.arange(lo, known)
        rows = buffer.observations.reshape(-1, 4)[ids % buffer.rewards.size]
        edges = np.quantile(rows, quantiles, axis=0)

        def cells(states: States) -> NDArray[np.int64]:
            axes = [np.searchsorted(edges[:, k], states[:, k]) for k in range(4)]
            return np.ravel_multi_index(axes, (len(quantiles) + 1,) * 4)

        share = float(priorities.is_initial[: buffer.size()].mean())
        visits = np.zeros((len(quantiles) + 1) ** 4)
        for states, weight in (
            (new_starts(rng), DISCOUNT * share),
            (rows[rng.integers(len(rows), size=ROLLOUTS)], 1.0 - DISCOUNT),
        ):
            for t, (seen, _) in enumerate(simulate(states, lambda s: pi(agent, buffer, s), rng)):
                np.add.at(visits, cells(seen), weight * DISCOUNT**t / ROLLOUTS)
        own = cells(rows)
        c = visits[own] / np.bincount(own, minlength=len(visits))[own] * len(rows)
        update(ids, c / c.mean())

    setattr(priorities.sampler, "update", only_new)  # noqa: B010
    return refresh


def measure(agent: DQN, seed: int) -> Array:
    """How far Q is from the return of the greedy policy, whether c is right, and what is drawn."""
    rng, buffer = np.random.default_rng(seed), agent.replay_buffer
    assert buffer is not None
    starts = new_starts(rng)

    def greedy(seen: States) -> Array:
        return epsilon_greedy_probabilities(q_values(agent.q_net, seen), 0.0)

    achieved = follow(starts, greedy, rng, DISCOUNT)[0]
    excess = q_values(agent.q_net, starts).max(axis=1).mean() - achieved
    if not isinstance(buffer, RatioReplayBuffer):
        return np.array([excess, *[np.nan] * 5, 1.0, 1.0, *[np.nan] * 2])
    rows = buffer.observations[: buffer.size()].reshape(-1, 4)
    states = rows[rng.integers(len(rows), size=ROLLOUTS)]
    risks, priorities = risk(rows), buffer.priorities
    gamma = priorities.learner.loss.options.ratio_discount
    initial_share = float(priorities.is_initial[: buffer.size()].mean())
    from_starts = follow(starts, lambda seen: pi(agent, buffer, seen), rng, gamma)
    from_states = follow(states, lambda seen: pi(agent, buffer, seen), rng, gamma)
    exact, exact_risk = (
        ratio_moment(*means, initial_share, gamma)
        for means in zip(from_starts, from_states, strict=True)
    )
    c = priorities.learner.ratio(rows).astype(np.float64)
    ids = np.arange(*priorities.sampler.window)
    law = np.zeros(len(rows))
    law[ids % len(rows)] = priorities.sampler.probabilities(ids)
    is_end, check = failed(buffer)[: len(rows)], buffer.last_check
    assert check is not None
    return np.array(
        [
            excess,
            c.mean(),
            exact,
            abs(c.mean() - exact) / exact,
            check.error,
            check.trajectories**-0.5,
            1.0 / (len(law) * np.square(law).sum()),
            law @ is_end / is_end.mean(),
            (c @ risks) / c.sum() / risks.mean(),
            exact_risk / exact / risks.mean(),
        ]
    )


def pi(agent: DQN, buffer: RatioReplayBuffer, seen: States) -> Array:
    """The policy whose ratio the buffer learns."""
    return epsilon_greedy_probabilities(q_values(agent.q_net_target, seen), buffer.target_epsilon)


def q_values(network: Any, seen: States) -> Array:
    """Q of both actions in each state."""
    with torch.no_grad():
        return np.asarray(network(torch.from_numpy(seen)), dtype=np.float64)


def new_starts(rng: np.random.Generator) -> States:
    """States that episodes start from."""
    return rng.uniform(-0.05, 0.05, (ROLLOUTS, 4)).astype(np.float32)


def follow(
    states: States, policy: Callable[[States], Array], rng: np.random.Generator, discount: float
) -> tuple[float, float]:
    """E[Σ γ̂ᵗ] and E[Σ γ̂ᵗ risk(s_t)] over episodes of the policy from these states."""
    sums = np.zeros(2)
    for t, (seen, risks) in enumerate(simulate(states, policy, rng)):
        sums += discount**t * np.array([len(seen), risks.sum()]) / len(states)
    return float(sums[0]), float(sums[1])


def simulate(
    states: States, policy: Callable[[States], Array], rng: np.random.Generator
) -> Iterator[tuple[States, Array]]:
    """The states of the episodes that have not failed yet, step by step, with the share of actions that end each at once."""
    seen, alive = states, np.ones(len(states), dtype=bool)
    for _ in range(ROLLOUT_STEPS):
        (left, left_fails), (right, right_fails) = step(seen, 0), step(seen, 1)
        yield seen[alive], (0.5 * left_fails + 0.5 * right_fails)[alive]
        is_right = rng.random(len(seen)) < policy(seen)[:, 1]
        alive &= ~np.where(is_right, right_fails, left_fails)
        seen = np.where(is_right[:, None], right, left)


def risk(states: States) -> Array:
    """Share of the two actions that end the episode at once."""
    return 0.5 * step(states, 0)[1] + 0.5 * step(states, 1)[1]


def step(states: States, action: int) -> tuple[States, NDArray[np.bool_]]:
    """Where Gymnasium's CartPole goes from each state by this action, and whether the episode fails there."""
    _, speed, angle, spin = states.T.astype(np.float64)
    force, sine, cosine = 20.0 * action - 10.0, np.sin(angle), np.cos(angle)
    pushed = (force + 0.05 * spin**2 * sine) / 1.1
    turned = (9.8 * sine - cosine * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    moved = pushed - 0.05 * turned * cosine / 1.1
    after = states + 0.02 * np.stack([speed, moved, spin, turned], axis=1)
    fails = (abs(after[:, 0]) > 2.4) | (abs(after[:, 2]) > np.deg2rad(12.0))
    return after.astype(np.float32), fails


def failed(buffer: ReplayBuffer) -> NDArray[np.bool_]:
    """Which stored steps ended an episode by failure, by slot."""
    return np.asarray((buffer.dones * (1 - buffer.timeouts)).ravel() == 1)


if __name__ == "__main__":
    main()
