import pickle
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from covshift.envs.finite import FiniteMDPEnv
from covshift.errors import InputError
from covshift.integrations import RatioReplay
from covshift.learners.deep import closure, ring_batch
from covshift.theory import c_star
from covshift.theory.examples import Problem, episodic

VECTORS, ACTIONS = spaces.Box(-10, 10, (3,), np.float32), spaces.Discrete(2)


def uniform(observations: NDArray[Any]) -> NDArray[np.float64]:
    return np.full((len(observations), 2), 0.5)


def numbered(
    replay: RatioReplay, steps: int, episode: int = 4, odds: float = 0.5, first: int = 0
) -> None:
    """Adds steps whose observation is (number of the step, environment, 0), in episodes of equal length."""
    envs = np.arange(replay.num_envs, dtype=np.float32)
    for t in range(first, first + steps):
        states = np.stack([np.full_like(envs, t), envs, 0 * envs], axis=1)
        arrived = states + np.array([1, 0, 0], dtype=np.float32)
        ends = np.full(replay.num_envs, (t + 1) % episode == 0)
        replay.add(states, envs.astype(int) % 2, t + envs, arrived, ends, 0 * ends, odds + 0 * envs)


def test_wraps_around_with_several_environments() -> None:
    replay = RatioReplay(31, spaces.Box(-1, 1000, (3,), np.float32), ACTIONS, num_envs=3)
    numbered(replay, 25)
    assert len(replay) == 30  # 10 steps of 3 environments
    replay.priorities.check_valid()
    batch = replay.sample(3000)
    law = replay.priorities.sampler.probabilities(np.arange(45, 75))
    assert (law == 1 / 30).all()  # uniform before the first update
    time, env = batch.observations[:, 0], batch.observations[:, 1]
    # The last ten steps of each environment are drawn, each about as often, and columns belong together.
    pairs, counts = np.unique(np.stack([time, env]), axis=1, return_counts=True)
    assert pairs[0].min() == 15
    assert pairs[0].max() == 24
    assert len(counts) == 30
    assert counts.min() > 60
    np.testing.assert_array_equal(batch.rewards, time + env)
    np.testing.assert_array_equal(batch.actions, env % 2)
    np.testing.assert_array_equal(batch.next_observations[:, 0], time + 1)
    np.testing.assert_array_equal(batch.terminated, (time + 1) % 4 == 0)


def test_the_ratio_learns_from_predecessors_in_the_same_environment() -> None:
    replay = RatioReplay(30, spaces.Box(-1, 1000, (3,), np.float32), ACTIONS, num_envs=3)
    numbered(replay, 25)
    seen: list[NDArray[Any]] = []
    predecessors: list[NDArray[Any]] = []
    learner = replay.priorities.learner
    whole = learner.update

    def spy(batch: Any, policy: Any) -> Any:
        continues = ~batch.is_initial_window[0]
        seen.append(batch.s_t[continues])
        predecessors.append(batch.s_window[0][continues])
        # Episodes start at multiples of 4, and only there.
        np.testing.assert_array_equal(batch.is_initial_window[0], batch.s_t[:, 0] % 4 == 0)
        return whole(batch, policy)

    learner.update = spy
    replay.update(uniform, 500)
    np.testing.assert_array_equal(predecessors[0], seen[0] - np.array([1, 0, 0], dtype=np.float32))
    # The oldest step, 15, would have a predecessor that is gone.
    assert seen[0][:, 0].min() == 17


def mixture(
    problem: Problem, rows: int, behaviors: list[NDArray[np.float64]], num_envs: int
) -> tuple[RatioReplay, NDArray[np.float64]]:
    """A replay that several behaviors filled, one after the other, and its visits per episode."""
    rng = np.random.default_rng(1)
    envs = [FiniteMDPEnv(problem) for _ in range(num_envs)]
    space = envs[0].observation_space
    replay = RatioReplay(
        rows * num_envs, space, envs[0].action_space, num_envs,
        ratio_discount=0.9, learning_rate=0.0007,
    )  # fmt: skip
    states = np.stack([env.reset(seed=k)[0] for k, env in enumerate(envs)])
    total = rows + rows // 3  # past the wrap-around
    for t in range(total):
        mu = behaviors[t * len(behaviors) // total]
        odds = mu[states.argmax(axis=1)]
        actions = np.array([rng.choice(len(p), p=p) for p in odds])
        stepped = [env.step(a) for env, a in zip(envs, actions, strict=True)]
        arrived = np.stack([s for s, *_ in stepped])
        ends = np.array([done for _, _, done, *_ in stepped])
        chosen = odds[np.arange(num_envs), actions]
        replay.add(
            states, actions, [r for _, r, *_ in stepped], arrived, ends, ends & False, chosen
        )
        states = np.stack(
            [env.reset()[0] if e else s for env, s, e in zip(envs, arrived, ends, strict=True)]
        )
    visits = replay.observations.sum(axis=(0, 1), dtype=np.float64)
    return replay, visits / replay.priorities.is_initial.sum()


def slow_ratio(replay: RatioReplay, pi: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """The ratio of each state that is the mean of its targets over the replay, row by row in the order of time.

    Each source is multiplied by the factor under which the mass that leaves the replay is the mass that enters it (B7).
    """
    rows, steps = len(replay.actions), replay.priorities.steps
    states = replay.observations.argmax(axis=2)
    num_states = len(pi)
    matrix, left = np.zeros((num_states,) * 2), np.zeros(num_states)
    constant, count, initial = np.zeros(num_states), np.zeros(num_states), 0
    for env in range(replay.num_envs):
        for t in range(steps - rows + 1, steps):
            now, before = t % rows, (t - 1) % rows
            s_t, s_tm1 = states[now, env], states[before, env]
            count[s_t] += 1
            if replay.terminated[now, env]:
                left[s_t] += pi[s_t, replay.actions[now, env]] / replay.priorities.mu[now, env]
            if replay.priorities.is_initial[now, env]:
                initial += 1
                constant[s_t] += 1
            else:
                rho = pi[s_tm1, replay.actions[before, env]] / replay.priorities.mu[before, env]
                matrix[s_t, s_tm1] += gamma * rho
                constant[s_t] += 1 - gamma
    c = np.ones(num_states)
    for _ in range(500):
        leaves = (1 - gamma) * (count @ c) + gamma * (left @ c)
        factor = ((1 - gamma) * count.sum() + gamma * initial) / leaves
        c = (constant + matrix @ (factor * c)) / count
    return np.asarray(c)


def test_the_ratio_is_exact_for_a_mixture_of_behaviors(monkeypatch: pytest.MonkeyPatch) -> None:
    """c is the ratio of π to the replay's own mixture, since every row has its own μ."""
    # Running means that look back over a thousand updates would still hold the ratios of the start.
    monkeypatch.setattr(closure, "_MEMORY", 0.95)
    drawn = episodic(np.random.default_rng(4))
    table = [np.tile([p, 1 - p], (5, 1)) for p in (0.85, 0.3, 0.4)]
    problem = replace(drawn, pi=table[0], mu=table[1])
    replay, visits = mixture(problem, 2500, table[1:], 2)
    policy = lambda s: problem.pi[s.argmax(axis=1)]  # noqa: E731
    for _ in range(1800):
        replay.update(policy, 512)
    found, law = replay.ratio(np.eye(5, dtype=np.uint8)), visits / visits.sum()
    of_data, exact = slow_ratio(replay, problem.pi, 0.9), c_star(problem.chain_pi, visits, 0.9)
    assert np.ptp(exact) > 0.5
    np.testing.assert_allclose(of_data, exact, rtol=0.12)  # chance in 5,000 steps
    np.testing.assert_allclose(law @ of_data, law @ exact, rtol=0.01)  # the mass is closed
    np.testing.assert_allclose(found, of_data, rtol=0.05)
    assert replay.mean_ratio == pytest.approx(law @ exact, rel=0.1)
    assert replay.effective_share == pytest.approx((law @ exact) ** 2 / (law @ exact**2), rel=0.1)
    # States are drawn in proportion to √c times their share of the replay.
    seen = np.mean([replay.sample(500).observations.mean(axis=0) for _ in range(20)], axis=0)
    root = np.sqrt(found)
    np.testing.assert_allclose(seen, law * root / (law @ root), atol=0.01)
    assert np.abs(law * root / (law @ root) - law * found / (law @ found)).max() > 0.02


@pytest.mark.parametrize("tempering", [0.0, 0.5, 1.0])
def test_draws_follow_the_power_of_the_ratio(
    tempering: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = RatioReplay(8, VECTORS, ACTIONS, tempering=tempering)
    numbered(replay, 8)
    c = np.linspace(0.5, 4.0, 8)
    learner = replay.priorities.learner
    monkeypatch.setattr(learner, "ratio", lambda seen: c[seen[:, 0].astype(int)])
    learner.num_updates = 1
    for _ in range(40):  # A drawn row gets its priority, and every row is drawn.
        replay.sample(8)
    law = replay.priorities.sampler.probabilities(np.arange(8))
    np.testing.assert_allclose(law, c**tempering / (c**tempering).sum())


def test_timeouts_end_episodes_but_do_not_stop_bootstrapping() -> None:
    replay = RatioReplay(20, VECTORS, ACTIONS)
    replay.add(np.zeros(3), 0, 1.0, np.ones(3), False, True, mu=0.5)
    replay.add(np.full(3, 5.0), 0, 1.0, np.full(3, 6.0), False, False, mu=0.5)
    assert replay.priorities.is_initial[:3, 0].tolist() == [True, True, False]
    assert not replay.sample(10).terminated.any()


def test_a_pickled_replay_continues_the_same() -> None:
    replay = RatioReplay(24, spaces.Box(-1, 1000, (3,), np.float32), ACTIONS, num_envs=2)
    numbered(replay, 30)
    replay.update(uniform)
    again: RatioReplay = pickle.loads(pickle.dumps(replay))
    for each in (replay, again):
        numbered(each, 7, first=30, odds=0.25)
        each.update(uniform)
    again.priorities.check_valid()
    for mine, loaded in zip(replay.sample(50), again.sample(50), strict=True):
        np.testing.assert_array_equal(mine, loaded)
    states = replay.observations[:, 0]
    np.testing.assert_array_equal(replay.ratio(states), again.ratio(states))
    assert replay.mean_ratio == again.mean_ratio


def test_images_and_torch_policies() -> None:
    space = spaces.Box(0, 255, (2, 36, 36), np.uint8)
    replay = RatioReplay(8, space, ACTIONS)
    for t in range(11):
        frame = np.full((2, 36, 36), t, dtype=np.uint8)
        replay.add(frame, t % 2, 0.0, frame + np.uint8(1), t % 5 == 4, False, mu=0.5)
    replay.update(lambda s: torch.full((len(s), 2), 0.5, requires_grad=True), 4)
    batch = replay.sample(6)
    assert batch.observations.dtype == np.uint8
    assert batch.observations.shape == (6, 2, 36, 36)
    np.testing.assert_array_equal(batch.observations[:, 0, 0, 0] % 2, batch.actions)


def test_the_global_generators_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    replay = RatioReplay(20, VECTORS, ACTIONS)
    numbered(replay, 3)
    replay.update(uniform)
    assert torch.rand(1) == expected


GOOD: dict[str, Any] = {
    "observation": np.zeros(3), "action": 0, "reward": 0.0, "next_observation": np.ones(3),
    "terminated": False, "truncated": False, "mu": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": 2}, "action 2 is outside the space of 2 actions"),
        ({"action": -1}, "action -1 is outside"),
        ({"action": 0.7}, "action must be a whole number, but it is 0.7"),
        ({"action": "left"}, "action must be a whole number, but it is 'left'"),
        ({"mu": 0.0}, r"μ of the action taken must lie in \(0, 1\], but in environment 0 it is 0"),
        ({"mu": 1.5}, "it is 1.5"),
        ({"mu": np.nan}, "it is nan"),
        ({"observation": np.zeros(4)}, r"observation must have the shape \(1, 3\)"),
        ({"observation": np.full(3, np.nan)}, "observation must be finite, but it holds nan"),
        (
            {"next_observation": np.full(3, np.inf)},
            "next_observation must be finite, but it holds inf",
        ),
        ({"reward": np.nan}, "reward must be finite, but it holds nan"),
        ({"observation": np.full(3, 2.0)}, "environment 0 was reset in the middle of an episode"),
    ],
)
def test_bad_steps_are_refused_and_leave_no_trace(changes: dict[str, Any], message: str) -> None:
    replay = RatioReplay(20, VECTORS, ACTIONS)
    replay.add(**GOOD | {"next_observation": np.zeros(3)})
    with pytest.raises(InputError, match=message):
        replay.add(**GOOD | changes)
    replay.add(**GOOD)
    assert len(replay) == 2
    assert replay.priorities.is_initial[:2, 0].tolist() == [True, False]


def test_a_reset_that_is_told_starts_an_episode() -> None:
    replay = RatioReplay(20, VECTORS, ACTIONS)
    replay.add(**GOOD)
    replay.cut()
    replay.add(**GOOD)
    assert replay.priorities.is_initial[:2, 0].tolist() == [True, True]


@pytest.mark.parametrize("is_next", [True, False])
def test_steps_that_only_reset_a_vector_environment_are_noticed(is_next: bool) -> None:
    mode = AutoresetMode.NEXT_STEP if is_next else AutoresetMode.SAME_STEP
    envs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2, autoreset_mode=mode)
    replay = RatioReplay(400, envs.single_observation_space, ACTIONS, 2)
    rng, (states, _) = np.random.default_rng(0), envs.reset(seed=0)
    warned = pytest.warns(UserWarning, match=r"first 3 episodes .*=AutoresetMode.SAME_STEP")
    with warned if is_next else nullcontext():
        for _ in range(150):
            actions = rng.integers(0, 2, 2)
            after, rewards, ends, cuts, info = envs.step(actions)
            arrived = after.copy()
            for k in np.flatnonzero((ends | cuts) & (not is_next)):
                arrived[k] = info["final_obs"][k]
            replay.add(states, actions, rewards, arrived, ends, cuts, [0.5, 0.5])
            states = after


def test_an_episode_must_fit() -> None:
    replay = RatioReplay(8, VECTORS, ACTIONS, num_envs=2)
    numbered(replay, 4, episode=5)
    with pytest.raises(InputError, match="longer than the replay, which holds 4 steps"):
        numbered(replay, 1, episode=5, first=4)
    fits = RatioReplay(8, VECTORS, ACTIONS, num_envs=2)
    numbered(fits, 12, episode=4)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("greedy", "policy must be a function from observations to probabilities"),
        (lambda s: s[:, 0], "shape .64, 2., but it returned shape .64,."),
        (lambda s: np.full((len(s), 2), 3.0), r"that sum to 1, but it returned \[3.0, 3.0\]"),
        (lambda s: np.tile([1.5, -0.5], (len(s), 1)), r"returned \[1.5, -0.5\]"),
        (lambda s: np.full((len(s), 2), np.nan), "returned .nan, nan."),
    ],
)
def test_a_policy_must_return_probabilities(policy: Any, message: str) -> None:
    replay = RatioReplay(20, VECTORS, ACTIONS)
    replay.add(**GOOD)
    with pytest.raises(InputError, match=message):
        replay.update(policy)


def test_what_the_ratio_cannot_be_learned_in() -> None:
    with pytest.raises(InputError, match="actions must be Discrete from 0, but they are Box"):
        RatioReplay(20, VECTORS, VECTORS)
    with pytest.raises(InputError, match="observations must be a Box, but they are Discrete"):
        RatioReplay(20, ACTIONS, ACTIONS)
    with pytest.raises(InputError, match="capacity must be at least 1, but it is -4"):
        RatioReplay(-4, VECTORS, ACTIONS)
    with pytest.raises(InputError, match="num_envs must be at least 1, but it is 0"):
        RatioReplay(8, VECTORS, ACTIONS, num_envs=0)
    with pytest.raises(InputError, match="batch_size must be at least 1, but it is -1"):
        RatioReplay(8, VECTORS, ACTIONS).sample(-1)
    with pytest.raises(InputError, match="at least 2 steps per environment, but it has 1"):
        RatioReplay(5, VECTORS, ACTIONS, num_envs=3)
    with pytest.raises(InputError, match=r"tempering must lie in \[0, 1\], but it is 2"):
        RatioReplay(20, VECTORS, ACTIONS, tempering=2)
    with pytest.raises(InputError, match="ratio_discount must lie between 0 and 1, but it is 1"):
        RatioReplay(20, VECTORS, ACTIONS, ratio_discount=1.0)
    empty = RatioReplay(20, VECTORS, ACTIONS)
    with pytest.raises(InputError, match="the replay is empty"):
        empty.sample(3)
    with pytest.raises(InputError, match="the replay is empty"):
        empty.update(uniform)


def test_a_learner_without_a_policy_must_be_given_one() -> None:
    learner = RatioReplay(20, VECTORS, ACTIONS).priorities.learner
    rows = np.zeros((2, 3), dtype=np.float32)
    batch = ring_batch(rows, np.zeros(2), np.ones(2), np.array([True, False]), np.array([1]))
    with pytest.raises(InputError, match="update needs a policy"):
        learner.update(batch)


def test_the_mass_closure_sees_the_ends_that_are_still_in_the_ring() -> None:
    """Episodes of 4 steps; terminations, timeouts and resets that were told end one."""
    replay = RatioReplay(30, spaces.Box(-1, 1000, (3,), np.float32), ACTIONS, num_envs=3)
    numbered(replay, 25)
    replay.cut()
    learner = replay.priorities.learner
    seen: list[Any] = []
    whole = learner.update

    def spy(batch: Any, policy: Any) -> Any:
        seen.append(batch.ends)
        return whole(batch, policy)

    learner.update = spy
    replay.update(uniform, 500)
    (ends,) = seen
    # Steps 15 to 24 are in the ring, and the batch is of those whose predecessor is: 16 to 24.
    assert set(ends.s_tm1[:, 0]) == {19.0, 23.0, 24.0}
    assert ends.share == pytest.approx(3 / 9)
    assert ends.initial_share == pytest.approx(3 / 9)
    assert not ends.is_cut.any()
    assert (ends.mu_tm1 == 0.5).all()

    without = RatioReplay(30, VECTORS, ACTIONS)
    without.add(np.zeros(3), 0, 1.0, np.ones(3), False, False, mu=0.5)
    without.update(uniform)  # No episode has ended yet.
    assert np.isfinite(without.mean_ratio)


def test_a_learner_that_closes_the_mass_needs_ends() -> None:
    replay = RatioReplay(20, VECTORS, ACTIONS)
    replay.add(np.zeros(3), 0, 1.0, np.ones(3), False, False, mu=0.5)
    batch = ring_batch(
        replay.observations[:, 0],
        replay.actions[:, 0],
        replay.priorities.mu[:, 0],
        replay.priorities.is_initial[:, 0],
        np.array([0]),
    )
    with pytest.raises(InputError, match="mass_closure needs batches with `ends`"):
        replay.priorities.learner.update(batch, uniform)
