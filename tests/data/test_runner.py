from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from covshift.config.environment import EnvOptions
from covshift.data.policies import Uniform
from covshift.data.runner import Actor, Decision, PolicyActor, Runner
from covshift.envs import make_streams


class NotingActor:
    """Notes what it sees, and always takes the same action."""

    needs_observations = True

    def __init__(self, action: int) -> None:
        self.action = action

    def decide(self, states: np.ndarray) -> Decision:
        probabilities = np.eye(2)[np.full(len(states), self.action)]
        return Decision(
            probabilities, {"seen": states.copy(), "by": np.full(len(states), self.action)}
        )


def run(env: str, actors: list[Actor], count: int, options: EnvOptions | None = None) -> list[Any]:
    rng = np.random.default_rng(0)
    with (
        closing(make_streams(env, options or EnvOptions(), 3)) as streams,
        closing(Runner(streams, actors, list(rng.spawn(3))).steps()) as steps,
    ):
        return [next(steps) for _ in range(count)]


def test_notes_of_a_step_are_about_the_states_it_was_taken_in() -> None:
    steps = run("CartPole-v1", [NotingActor(1)], 40)
    assert any(step.outcome.ended.any() for step in steps)
    for step in steps:
        np.testing.assert_array_equal(step.notes["seen"], step.observation)
    for before, after in pairwise(steps):
        np.testing.assert_array_equal(after.observation, before.outcome.current)


def test_notes_of_a_mixture_are_those_of_the_actor_that_acted() -> None:
    steps = run("CartPole-v1", [NotingActor(0), NotingActor(1)], 60)
    assert len({int(k) for step in steps for k in step.policy}) == 2
    for step in steps:
        np.testing.assert_array_equal(step.notes["by"], step.policy)
        np.testing.assert_array_equal(step.action, step.policy)


def test_a_plain_policy_notes_nothing() -> None:
    (step,) = run("CartPole-v1", [PolicyActor(Uniform(2))], 1)
    assert step.notes == {}
    np.testing.assert_array_equal(step.mu, [0.5, 0.5, 0.5])


@pytest.mark.parametrize("depth", [1, 3])
def test_actors_see_as_many_frames_as_the_environment_stacks(depth: int) -> None:
    class Still(NotingActor):
        def decide(self, states: np.ndarray) -> Decision:
            return Decision(np.full((len(states), 6), 1 / 6), {"seen": states.copy()})

    options = EnvOptions(frame_stack=depth, episode_cap=7)
    steps = run("ALE/Pong-v5", [Still(0)], 20, options)
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
