"""Trying a policy: whole episodes, many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.config.environment import EnvOptions
from covshift.data.policies import Policy
from covshift.data.recording import Runner
from covshift.envs import make_streams
from covshift.learners.deep.ratio import clipped
from covshift.networks import AgentNetwork
from covshift.rules import epsilon_greedy_probabilities, expected_value

_MOST_STREAMS = 16


class Prediction(NamedTuple):
    """What the network says of a batch of states.

    Attributes:
        q: batch × actions, expected returns.
        ratio: c clipped at 0; NaN where the ratio is not learned.
    """

    q: NDArray[np.float32]
    ratio: NDArray[np.float32]


@final
class AgentPolicy:
    """ε-greedy on a network's expected values.

    Args:
        network: whose values are acted on.
        support: the atoms.
        epsilon: ε.
        ratio_network: whose ratio is noted of every state that is acted in; the same network by default.
    """

    needs_observations = True

    def __init__(
        self,
        network: AgentNetwork,
        support: Tensor,
        epsilon: float,
        ratio_network: AgentNetwork | None = None,
    ) -> None:
        self.network, self.support, self.epsilon = network, support, epsilon
        self.ratio_network = ratio_network or network
        self.seen: deque[Prediction] = deque()

    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """batch × actions; notes what the network says of them."""
        prediction = self.predict(observations)
        self.seen.append(prediction)
        return epsilon_greedy_probabilities(prediction.q.astype(np.float64), self.epsilon)

    @torch.no_grad()
    def predict(self, observations: NDArray[Any]) -> Prediction:
        """Values and ratios of a batch of states."""
        states = torch.from_numpy(np.ascontiguousarray(observations)).to(self.support.device)
        features = cast(Tensor, self.network.torso(states))
        p = torch.softmax(cast(Tensor, self.network.value_head(features)), dim=-1)
        q = expected_value(p, self.support).cpu().numpy()
        if self.ratio_network.ratio_head is None:
            return Prediction(q, np.full(len(q), np.nan, dtype=np.float32))
        if self.ratio_network is not self.network:
            features = cast(Tensor, self.ratio_network.torso(states))
        return Prediction(q, clipped(self.ratio_network.ratio(features)).cpu().numpy())

    def description(self) -> dict[str, str]:
        """Never written: agents in evaluation are not collected from."""
        return {"policy": "agent"}


@final
@dataclass(frozen=True)
class Episode:
    """One episode's outcome.

    Attributes:
        score: sum of rewards.
        length: agent steps.
        ratio_sum: sum of c over its states.
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
    stack: int,
) -> list[Episode]:
    """Whole episodes of a policy.

    Each of several streams runs a number of episodes that is fixed beforehand: taking those that end first
    would favor short ones.
    """
    count = min(episodes, _MOST_STREAMS)
    quotas = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    done = np.zeros(count, dtype=np.int64)
    score, length, ratio_sum = np.zeros(count), np.zeros(count, dtype=np.int64), np.zeros(count)
    result = []
    for step, prediction in run_steps(policy, env, options, count, generator, stack):
        score += step.reward
        length += 1
        ratio_sum += prediction.ratio
        for k in np.flatnonzero(step.terminated | step.truncated):
            if done[k] < quotas[k]:
                result.append(Episode(float(score[k]), int(length[k]), float(ratio_sum[k])))
            done[k] += 1
            score[k] = length[k] = ratio_sum[k] = 0
        if (done >= quotas).all():
            break
    return result


def run_steps(
    policy: AgentPolicy,
    env: str,
    options: EnvOptions,
    count: int,
    generator: np.random.Generator,
    stack: int,
) -> Iterator[tuple[Any, Prediction]]:
    """Steps of `count` streams without end, each with what the network said of the states acted in."""
    streams = make_streams(env, options, count)
    policies: list[Policy] = [policy]
    policy.seen.clear()
    try:
        for step in Runner(streams, policies, list(generator.spawn(count)), stack).steps():
            yield step, policy.seen.popleft()
    finally:
        streams.close()
