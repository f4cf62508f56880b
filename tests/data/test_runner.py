from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from covshift.config.environment import EnvOptions
from covshift.data.policies import Uniform
from covshift.data.runner import Decide, Decision, Runner, follow
from covshift.envs import make_streams


def note(action: int) -> Decide:
    """Notes what it sees, and always takes the same action."""

    def decide(states: np.ndarray) -> Decision:
        taken = np.full(len(states), action)
        return Decision(np.eye(2)[taken], {"seen": states.copy(), "by": taken})

    return decide


def run(
    env: str, policies: list[Decide], count: int, options: EnvOptions | None = None
) -> list[Any]:
    rng = np.random.default_rng(0)
    with (
        closing(make_streams(env, options or EnvOptions(), 3)) as streams,
        closing(Runner(streams, policies, list(rng.spawn(3))).steps()) as steps,
    ):
        return [next(steps) for _ in range(count)]


def test_notes_of_a_step_are_about_the_states_it_was_taken_in() -> None:
    steps = run("CartPole-v1", [note(1)], 40)
    assert any(step.outcome.ended.any() for step in steps)
    for step in steps:
        np.testing.assert_array_equal(step.notes["seen"], step.observation)
    for before, after in pairwise(steps):
        np.testing.assert_array_equal(after.observation, before.outcome.current)


def test_notes_of_a_mixture_are_those_of_the_policy_that_acted() -> None:
    steps = run("CartPole-v1", [note(0), note(1)], 60)
    assert len({int(k) for step in steps for k in step.policy}) == 2
    for step in steps:
        np.testing.assert_array_equal(step.notes["by"], step.policy)
        np.testing.assert_array_equal(step.action, step.policy)


def test_a_plain_policy_notes_nothing() -> None:
    (step,) = run("CartPole-v1", [follow(Uniform(2))], 1)
    assert step.notes == {}
    np.testing.assert_array_equal(step.mu, [0.5, 0.5, 0.5])


def test_decisions_that_need_no_observations_are_made_once() -> None:
    asked: list[int] = []

    def decide(states: np.ndarray) -> Decision:
        asked.append(len(states))
        return Decision(np.full((len(states), 2), 0.5))

    with closing(make_streams("CartPole-v1", EnvOptions(), 2)) as streams:
        generators = list(np.random.default_rng(0).spawn(2))
        runner = Runner(streams, [decide], generators, needs_observations=False)
        with closing(runner.steps()) as steps:
            taken = np.array([next(steps).action for _ in range(50)])
    assert asked == [2]
    assert 0.3 < taken.mean() < 0.7


@pytest.mark.parametrize("depth", [1, 3])
def test_policies_see_as_many_frames_as_the_environment_stacks(depth: int) -> None:
    def decide(states: np.ndarray) -> Decision:
        return Decision(np.full((len(states), 6), 1 / 6), {"seen": states.copy()})

    options = EnvOptions(frame_stack=depth, episode_cap=7)
    steps = run("ALE/Pong-v5", [decide], 20, options)
    frames: list[np.ndarray] = []
    for step in steps:
        frames.append(step.observation[0])
        seen = step.notes["seen"][0]
        if depth == 1:
            np.testing.assert_array_equal(seen, frames[-1])
        else:
            missing = max(0, depth - len(frames))
            assert not seen[:missing].any()
            np.testing.assert_array_equal(seen[missing:], frames[-depth:])
        if step.outcome.ended[0]:
            frames = []
    assert steps[6].outcome.truncated[0]
