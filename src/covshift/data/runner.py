"""Running policies in the streams of an environment."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.policies import Policy
from covshift.envs import Outcome, Streams

_DRAWS = 512
"""Uniform numbers that a stream draws at once."""


@final
@dataclass(frozen=True, eq=False)
class Decision:
    """What is decided in a batch of states.

    Attributes:
        probabilities: states × actions.
        notes: further arrays by name with one entry per state, such as the state's value.
    """

    probabilities: NDArray[np.float64]
    notes: dict[str, NDArray[Any]] = field(default_factory=dict)


Decide = Callable[[NDArray[Any]], Decision]
"""Decides about the actions in a batch of states."""


def follow(policy: Policy) -> Decide:
    """Decides by a policy's probabilities, and notes nothing."""
    return lambda states: Decision(policy.probabilities(states))


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One step of all streams; each array has an entry per stream.

    Attributes:
        observation: the observation in which the action was taken; for Atari games the newest frame.
        action: the action taken.
        mu: its probability.
        policy: the number of the policy that took it.
        notes: what the policy noted about the state.
        outcome: what the action led to.
    """

    observation: NDArray[Any]
    action: NDArray[np.int64]
    mu: NDArray[np.float64]
    policy: NDArray[np.int64]
    notes: dict[str, NDArray[Any]]
    outcome: Outcome


@final
class Runner:
    """Runs one policy, or several of which each episode picks one at random.

    Args:
        streams: the environment.
        policies: functions that decide about actions; if there are several, they note the same names.
        generators: one for each stream; it seeds the stream, picks its policies and draws its actions.
        needs_observations: whether the decisions depend on the states; if not, they are made only once.
        shares: the probability that an episode picks each policy; if there are none, all are picked alike.
    """

    def __init__(
        self,
        streams: Streams,
        policies: list[Decide],
        generators: list[np.random.Generator],
        *,
        needs_observations: bool = True,
        shares: tuple[float, ...] = (),
    ) -> None:
        self._streams, self._policies, self._generators = streams, policies, generators
        self._needs, self._shares = needs_observations, shares
        self._draws = np.empty((0, len(generators)))

    def steps(self) -> Generator[Step]:
        """One step after the other, without end.

        While the caller handles a step, the emulators run the next one. Closing the generator waits for them,
        so that the streams can be reset.
        """
        seeds = np.array([rng.integers(2**31 - 1) for rng in self._generators])
        everywhere = np.ones(len(seeds), dtype=bool)
        observation = self._streams.reset(seeds)
        policy = self._choose(np.zeros(len(seeds), dtype=np.int64), everywhere)
        states = self._stack(None, observation, everywhere)
        decision = self._decide(states, policy)
        actions = _Categorical(decision.probabilities)
        action, mu = actions.draw(self._uniform(0))
        self._streams.send(action)
        for index in count(1):
            outcome = self._streams.receive()
            step = Step(observation, action, mu, policy, decision.notes, outcome)
            observation = outcome.current
            policy = self._choose(policy, outcome.ended)
            states = self._stack(states, observation, outcome.ended)
            if self._needs or len(self._policies) > 1:
                decision = self._decide(states, policy)
                actions = _Categorical(decision.probabilities)
            action, mu = actions.draw(self._uniform(index))
            self._streams.send(action)
            try:
                yield step
            except GeneratorExit:
                self._streams.receive()
                raise

    def _choose(self, policy: NDArray[np.int64], starts: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The policy of each stream; where an episode starts, one is picked at random."""
        if len(self._policies) == 1:
            return policy
        policy = policy.copy()
        for k in np.flatnonzero(starts):
            rng = self._generators[k]
            if self._shares:
                policy[k] = rng.choice(len(self._shares), p=self._shares)
            else:
                policy[k] = rng.integers(len(self._policies))
        return policy

    def _stack(
        self, states: NDArray[Any] | None, observation: NDArray[Any], starts: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """What policies see: the newest frames of the episode, oldest first and zero before its first."""
        depth = self._streams.frame_stack
        if depth == 1 or not self._needs:
            return observation
        if states is None:
            shape = (len(observation), depth, *observation.shape[1:])
            states = np.zeros(shape, dtype=observation.dtype)
        states = np.concatenate([states[:, 1:], observation[:, None]], axis=1)
        states[starts, :-1] = 0
        return states

    def _decide(self, states: NDArray[Any], policy: NDArray[np.int64]) -> Decision:
        if len(self._policies) == 1:
            return self._policies[0](states)
        every, streams = [decide(states) for decide in self._policies], np.arange(len(policy))
        return Decision(
            np.stack([decision.probabilities for decision in every])[policy, streams],
            {
                name: np.stack([decision.notes[name] for decision in every])[policy, streams]
                for name in every[0].notes
            },
        )

    def _uniform(self, index: int) -> NDArray[np.float64]:
        """The uniform number of each stream for this step."""
        if index % _DRAWS == 0:
            self._draws = np.stack([rng.random(_DRAWS) for rng in self._generators], axis=1)
        return np.asarray(self._draws[index % _DRAWS])


class _Categorical:
    """Draws actions by inversion, from a row of probabilities for each stream."""

    def __init__(self, probabilities: NDArray[np.float64]) -> None:
        self._probabilities = probabilities
        self._cumulative = np.cumsum(probabilities, axis=1)
        self._last = probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(axis=1)
        self._rows = np.arange(len(probabilities))

    def draw(self, u: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """An action for each u and its probability, which is never 0."""
        action = np.minimum((self._cumulative <= u[:, None]).sum(axis=1), self._last)
        return action, self._probabilities[self._rows, action]
