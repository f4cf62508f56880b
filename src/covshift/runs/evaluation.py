"""Evaluating a policy: whole episodes, many at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.config.environment import EnvOptions
from covshift.data.runner import Decision, Runner, Step
from covshift.envs import make_streams
from covshift.learners.deep.ratio import clipped
from covshift.networks import AgentNetwork
from covshift.rules import epsilon_greedy_probabilities, expected_value

_MOST_STREAMS = 16

_FEW_STATES = 64
"""Predictions for at most so many states take one thread."""


class Prediction(NamedTuple):
    """What the network says about a batch of states.

    Attributes:
        q: states × actions, expected returns.
        ratio: c(s) clipped at 0; NaN if the ratio is not learned.
    """

    q: NDArray[np.float32]
    ratio: NDArray[np.float32]


@final
class AgentPolicy:
    """ε-greedy on a network's expected values; notes the `value` and the `ratio` of each state.

    Args:
        network: network whose values are acted on.
        support: atoms of the value distribution.
        epsilon: ε.
        ratio_network: network whose ratio is noted; by default the same.
    """

    def __init__(
        self,
        network: AgentNetwork,
        support: Tensor,
        epsilon: float,
        ratio_network: AgentNetwork | None = None,
    ) -> None:
        self.network, self.support, self.epsilon = network, support, epsilon
        self.ratio_network = ratio_network or network

    def decide(self, states: NDArray[Any]) -> Decision:
        """ε-greedy probabilities; `ratio` is NaN if the ratio is not learned."""
        q, ratio = self.predict(states)
        probabilities = epsilon_greedy_probabilities(q.astype(np.float64), self.epsilon)
        return Decision(probabilities, {"value": q.max(axis=1), "ratio": ratio})

    def predict(self, states: NDArray[Any]) -> Prediction:
        """Values and ratios of a batch of states."""
        with torch.no_grad(), _few_threads(len(states)):
            return self._predict(states)

    def _predict(self, states: NDArray[Any]) -> Prediction:
        batch = torch.from_numpy(np.ascontiguousarray(states)).to(self.support.device)
        features = cast(Tensor, self.network.torso(batch))
        p = torch.softmax(cast(Tensor, self.network.value_head(features)), dim=-1)
        q = expected_value(p, self.support).cpu().numpy()
        if self.ratio_network.ratio_head is None:
            return Prediction(q, np.full(len(q), np.nan, dtype=np.float32))
        if self.ratio_network is not self.network:
            features = cast(Tensor, self.ratio_network.torso(batch))
        return Prediction(q, clipped(self.ratio_network.ratio(features)).cpu().numpy())


@contextmanager
def _few_threads(num_states: int) -> Generator[None]:
    """One thread for the few states of a step: with more, each step waits for the slowest, which on a busy machine has no core."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1 if num_states <= _FEW_STATES else usual)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@final
@dataclass(frozen=True)
class EpisodeResult:
    """The result of one episode.

    Attributes:
        score: sum of rewards.
        length: agent steps.
        ratio_sum: sum of c(s) over the states that were acted in.
    """

    score: float
    length: int
    ratio_sum: float


def roll_out(
    policy: AgentPolicy,
    env: str,
    options: EnvOptions,
    episodes: int,
    generator: np.random.Generator,
) -> list[EpisodeResult]:
    """Runs whole episodes of a policy in several streams.

    The number of episodes of each stream is fixed beforehand, since taking the episodes that end first would
    favor short ones.
    """
    count = min(episodes, _MOST_STREAMS)
    quotas = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    done = np.zeros(count, dtype=np.int64)
    score, length, ratio_sum = np.zeros(count), np.zeros(count, dtype=np.int64), np.zeros(count)
    results = []
    with closing(run_steps(policy, env, options, count, generator)) as steps:
        while (done < quotas).any():
            step = next(steps)
            score += step.outcome.reward
            length += 1
            ratio_sum += step.notes["ratio"]
            for k in np.flatnonzero(step.outcome.ended):
                if done[k] < quotas[k]:
                    results.append(
                        EpisodeResult(float(score[k]), int(length[k]), float(ratio_sum[k]))
                    )
                done[k] += 1
                score[k] = length[k] = ratio_sum[k] = 0
    return results


def run_steps(
    policy: AgentPolicy,
    env: str,
    options: EnvOptions,
    num_streams: int,
    generator: np.random.Generator,
) -> Generator[Step]:
    """Steps of a policy without end; their notes hold the `value` and the `ratio` of each state."""
    with closing(make_streams(env, options, num_streams)) as streams:
        runner = Runner(streams, [policy.decide], list(generator.spawn(num_streams)))
        with closing(runner.steps()) as steps:
            yield from steps
