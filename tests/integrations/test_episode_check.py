"""The ratio beside the replay's own episodes: a slow version, exact answers on a finite MDP, and ratios that are wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from covshift.envs.finite import FiniteMDPEnv
from covshift.integrations import RatioReplay
from covshift.integrations.episode_check import Trajectories, discounted_sums, horizon
from covshift.theory import c_star
from covshift.theory.examples import Problem, random_walk


def test_sums_are_the_weighted_means_of_each_time() -> None:
    """Trajectory after trajectory, with whole products of ρ."""
    rng = np.random.default_rng(3)
    lengths, gamma = np.array([2, 5, 4, 1]), 0.8
    is_step = np.arange(5)[:, None] < lengths
    rho, f = rng.uniform(0.2, 3.0, (5, 4)), rng.normal(size=(5, 4))
    found = discounted_sums(Trajectories(is_step, rho, {"f": f}), gamma)
    total, sizes, effective = 0.0, 0.0, 0.0
    for t in range(5):
        weights = [float(np.prod(rho[: min(t, lengths[i]), i])) for i in range(4)]
        alive = [i for i in range(4) if t < lengths[i]]
        total += gamma**t * sum(weights[i] * float(f[t, i]) for i in alive) / sum(weights)
        sizes += gamma**t * sum(weights[i] * abs(float(f[t, i])) for i in alive) / sum(weights)
        effective += gamma**t * sum(weights) ** 2 / sum(w**2 for w in weights)
    assert found.of["f"] == pytest.approx(total)
    assert found.of_sizes["f"] == pytest.approx(sizes)
    assert found.trajectories == pytest.approx(effective / sum(gamma**t for t in range(5)))


def test_what_no_trajectory_does_is_not_a_division_by_zero() -> None:
    followed = Trajectories(np.ones((3, 2), dtype=bool), np.zeros((3, 2)), {"1": np.ones((3, 2))})
    assert discounted_sums(followed, 0.5).of["1"] == 1.0  # The first state is certain.


def filled(problem: Problem, behaviors: list[NDArray[np.float64]], steps: int) -> RatioReplay:
    """A replay of two environments that behaviors filled one after the other, past its wrap-around."""
    rng, envs = np.random.default_rng(0), [FiniteMDPEnv(problem) for _ in range(2)]
    replay = RatioReplay(
        2 * steps, envs[0].observation_space, envs[0].action_space, 2, ratio_discount=0.9
    )
    states = np.stack([env.reset(seed=k)[0] for k, env in enumerate(envs)])
    total = steps + steps // 3
    for t in range(total):
        mu = behaviors[t * len(behaviors) // total][states.argmax(axis=1)]
        actions = np.array([rng.choice(2, p=p) for p in mu])
        stepped = [env.step(a) for env, a in zip(envs, actions, strict=True)]
        arrived, ends = np.stack([x[0] for x in stepped]), np.array([x[2] for x in stepped])
        replay.add(
            states, actions, np.zeros(2), arrived, ends, ends & False, mu[np.arange(2), actions]
        )
        states = np.stack(
            [env.reset()[0] if e else s for env, s, e in zip(envs, arrived, ends, strict=True)]
        )
    return replay


@pytest.fixture(scope="module")
def case() -> tuple[RatioReplay, Problem, NDArray[np.float64]]:
    """A replay of uniform play and then of nearly π, and the exact ratio of π to it."""
    table = [np.tile([1 - p, p], (6, 1)) for p in (0.8, 0.5, 0.7)]
    drawn = random_walk()
    table = [np.tile(rows[0], (drawn.mdp.num_states, 1)) for rows in table]
    problem = replace(drawn, pi=table[0], mu=table[1])
    replay = filled(problem, table[1:], 6000)
    visits = replay.observations.sum(axis=(0, 1), dtype=np.float64)
    visits /= replay.priorities.is_initial.sum()
    return replay, problem, c_star(problem.chain_pi, visits, 0.9)


def with_ratio(replay: RatioReplay, c: NDArray[np.float64], monkeypatch: Any) -> None:
    monkeypatch.setattr(
        replay.priorities.learner,
        "ratio",
        lambda seen: c[np.asarray(seen).argmax(axis=1)].astype(np.float32),
    )


def test_an_exact_ratio_passes_and_wrong_ones_do_not(
    case: tuple[RatioReplay, Problem, NDArray[np.float64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    replay, problem, exact = case
    policy = lambda s: problem.pi[s.argmax(axis=1)]  # noqa: E731
    law = replay.observations.mean(axis=(0, 1), dtype=np.float64)
    assert np.ptp(exact) > 0.5
    with_ratio(replay, exact, monkeypatch)
    right = replay.check(policy)
    assert right is not None
    assert 20 < right.trajectories <= 64
    assert right.mean_ratio == pytest.approx(law @ exact, rel=0.15)
    assert right.error < 0.2
    with_ratio(replay, 2.0 * exact, monkeypatch)
    doubled = replay.check(policy)
    assert doubled is not None
    assert doubled.mean_ratio == pytest.approx(right.mean_ratio)  # It does not use the ratio.
    assert doubled.error == pytest.approx(1.0, abs=0.3)
    # The right mean in the wrong states.
    other = exact[::-1] * (law @ exact) / (law @ exact[::-1])
    with_ratio(replay, other, monkeypatch)
    mirrored = replay.check(policy)
    assert mirrored is not None
    assert mirrored.error > right.error + 0.1


def test_a_check_changes_no_draw(case: tuple[RatioReplay, Problem, NDArray[np.float64]]) -> None:
    replay, problem, _ = case
    state = replay.priorities.sampler.save()
    first = replay.sample(20)
    replay.priorities.sampler.restore(state)
    replay.check(lambda s: problem.pi[s.argmax(axis=1)])
    for mine, again in zip(first, replay.sample(20), strict=True):
        np.testing.assert_array_equal(mine, again)


def test_trajectories_follow_one_environment_to_its_end() -> None:
    """Episodes of 4 and of 3 steps in two environments; the newest are followed first."""
    replay = RatioReplay(20, spaces.Box(-1, 99, (2,), np.float32), spaces.Discrete(2), 2)
    lengths = np.array([4, 3])
    for t in range(12):
        states = np.array([[t, 0], [t, 1]], dtype=np.float32)
        arrived = states + np.array([1, 0], dtype=np.float32)
        replay.add(states, [0, 0], [1, 1], arrived, (t + 1) % lengths == 0, [0, 0], [0.5, 0.5])
    priorities = replay.priorities
    lo = priorities.sampler.window[0]
    assert lo == 4  # Ten steps of each environment are left, 2 to 11.
    starts = priorities._since(priorities._starts, lo)
    ends = priorities._since(priorities._ends, lo)
    found = priorities._followed(starts[::-1], ends)
    followed = [[(int(i) // 2, int(i) % 2) for i in column if i >= 0] for column in found.T]
    assert followed == [
        [(9, 1), (10, 1), (11, 1)],
        [(8, 0), (9, 0), (10, 0), (11, 0)],
        [(6, 1), (7, 1), (8, 1)],
        [(4, 0), (5, 0), (6, 0), (7, 0)],
        [(3, 1), (4, 1), (5, 1)],
    ]
    inside = priorities._followed(np.array([2 * 5 + 0, 2 * 5 + 1]), ends)
    assert [[int(i) // 2 for i in column if i >= 0] for column in inside.T] == [[5, 6, 7], [5]]


def test_nothing_is_said_before_an_episode_has_ended() -> None:
    replay = RatioReplay(20, spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2))
    uniform = lambda s: np.full((len(s), 2), 0.5)  # noqa: E731
    assert replay.check(uniform) is None
    replay.add(np.zeros(3), 0, 1.0, np.ones(3), False, False, mu=0.5)
    assert replay.check(uniform) is None
    replay.add(np.ones(3), 0, 1.0, np.ones(3), False, True, mu=0.5)
    assert replay.check(uniform) is not None


def test_the_horizon_leaves_a_hundredth() -> None:
    assert 0.9 ** horizon(0.9) <= 0.01 < 0.9 ** (horizon(0.9) - 1)
