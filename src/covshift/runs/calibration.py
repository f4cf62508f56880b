"""Whether a learned ratio can be believed: what it says about observables against what episodes of π show.

For an observable f of states, and p₀ the share of the data's states that start an episode,

    E_μ[c f] = γ̂ p₀ E[Σ_t γ̂ᵗ f(s_t) | s_0 ~ d₀] + (1 - γ̂) E[Σ_t γ̂ᵗ f(s_t) | s_0 ~ d_μ]

where s_t follows π to the end of its episode: the mass of the ratio enters at starts and everywhere, and flows with π
(B6). With restarts the first term is missing, and s_t continues into the next episodes. The right side needs no ratio:
π is run from the start of episodes, and from where the behavior policy is after a while. The observable 1 gives the
exact mean ratio. An observable must be a function of the state: c corrects how often states are visited, not what led
to them, so that the time since the start, say, would not do.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from covshift.config.training import TrainConfig
from covshift.data.policies import Policy
from covshift.data.runner import Decision, Runner
from covshift.data.store import Store
from covshift.envs import make_streams
from covshift.rules import ratio_moment
from covshift.runs.evaluation import AgentPolicy

_LEAST_BURN_IN = 100
_LONGEST = 1000
"""Steps at most, of the behavior policy and then of π: beyond that a comparison costs more than it tells."""

_TAIL = 0.01
"""Discounted sums end where less than this share of their weight is left."""

_DATA_STATES = 4096
"""States of the data over which the learned ratio is averaged."""


class Calibration(NamedTuple):
    """How a ratio compares with episodes.

    Attributes:
        exact_mean: E_μ[c] by episodes.
        errors: for each observable f, |E_μ[c f] - exact| over the exact value for |f|.
    """

    exact_mean: float
    errors: dict[str, float]


def calibrate(
    config: TrainConfig,
    pi: AgentPolicy,
    behavior: Policy,
    store: Store,
    rng: np.random.Generator,
) -> Calibration | None:
    """Compares the ratio of an agent with episodes of its policy.

    Args:
        config: the run's configuration; counts visits or has restarts, with γ̂ < 1.
        pi: the target policy, which notes its value and its ratio.
        behavior: the policy that collected the data.
        store: the data.
        rng: draws states of the data, and seeds episodes.

    Returns:
        None where it would take too long: episodes of the data, or the memory 1/(1 - γ̂) of the ratio, are too long.
    """
    gamma, restarts = config.ratio.ratio_discount, config.ratio.semantics == "restart"
    horizon = math.ceil(math.log(_TAIL) / math.log(gamma)) if gamma > 0 else 1
    # A stream follows the behavior policy for a random time of one to two mean episodes. A fixed time would see only
    # some states of a process that has a period.
    burn_in = max(_LEAST_BURN_IN, math.ceil(1.0 / store.initial_share()))
    if burn_in > _LONGEST or (restarts and horizon > _LONGEST):
        return None
    horizon = min(horizon, _LONGEST)
    learned = _over_data(pi, store, rng)
    everywhere = _discounted(config, pi, behavior, (burn_in, 2 * burn_in), horizon, rng)
    if everywhere is None:
        return None
    if restarts:
        exact = {name: (1.0 - gamma) * x / (1.0 - gamma**horizon) for name, x in everywhere.items()}
    else:
        starts = _discounted(config, pi, behavior, (0, 0), horizon, rng)
        if starts is None:
            return None
        share = store.initial_share()
        exact = {
            name: ratio_moment(starts[name], x, share, gamma) for name, x in everywhere.items()
        }
    errors = {
        name: abs(learned[name] - exact[name]) / max(exact[f"|{name}|"], 1e-12) for name in learned
    }
    return Calibration(exact["1"], errors)


def _over_data(pi: AgentPolicy, store: Store, rng: np.random.Generator) -> dict[str, float]:
    """E_μ[c f] over states of the data, with the learned ratio."""
    eligible = np.flatnonzero(store.is_state)
    rows = rng.choice(eligible, min(_DATA_STATES, len(eligible)), replace=False)
    totals: dict[str, float] = {}
    for part in np.array_split(rows, -(-len(rows) // 512)):
        states = store.states(part)
        q, ratio = pi.predict(states)
        newest = states[:, -1] if store.stack > 1 else states
        for name, f in _observables(newest, q.max(axis=1), ratio).items():
            totals[name] = totals.get(name, 0.0) + float((ratio * f).sum())
    return {name: total / len(rows) for name, total in totals.items()}


def _discounted(
    config: TrainConfig,
    pi: AgentPolicy,
    behavior: Policy,
    burn_in: tuple[int, int],
    horizon: int,
    rng: np.random.Generator,
) -> dict[str, float] | None:
    """E[Σ_t γ̂ᵗ f(s_t)] and the same of |f|, of π after a number of steps of the behavior policy in this range.

    None where episodes have not ended at the horizon and still count.
    """
    gamma, count = config.ratio.ratio_discount, config.evaluation.calibration_episodes
    start = rng.integers(*burn_in, size=count, endpoint=True)
    weight = np.zeros(count)
    sums: dict[str, NDArray[np.float64]] = {}
    policy = _Switch(behavior, pi, start)
    with closing(make_streams(config.env, config.environment, count)) as streams:
        runner = Runner(streams, [policy.decide], list(rng.spawn(count)))
        with closing(runner.steps()) as steps:
            for t, step in zip(range(int(start.max()) + horizon), steps, strict=False):
                weight[t == start] = 1.0
                observed = _observables(step.observation, step.notes["value"], step.notes["ratio"])
                for name, f in observed.items():
                    for key, part in ((name, f), (f"|{name}|", np.abs(f))):
                        sums[key] = sums.get(key, np.zeros(count)) + weight * part
                weight *= gamma
                if config.ratio.semantics != "restart":
                    weight[step.outcome.ended] = 0.0
                expired = t + 1 >= start + horizon
                if (weight[expired] > 2 * _TAIL).any():
                    return None
                weight[expired] = 0.0
                if t >= start.max() and not weight.any():
                    break
    return {name: float(total.mean()) for name, total in sums.items()}


def _observables(
    observation: NDArray[Any], value: NDArray[Any], ratio: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """Functions of a state that every environment has."""
    return {
        "1": np.ones(len(value)),
        "mean of the observation": observation.reshape(len(value), -1).mean(axis=1),
        "value": np.asarray(value, dtype=np.float64),
        "ratio": np.asarray(ratio, dtype=np.float64),
    }


@final
@dataclass
class _Switch:
    """Follows the behavior policy in each stream until a step of its own, then π."""

    behavior: Policy
    pi: AgentPolicy
    start: NDArray[np.int64]
    step: int = 0

    def decide(self, states: NDArray[Any]) -> Decision:
        waits = (self.step < self.start)[:, None]
        self.step += 1
        if waits.all():  # π is not needed yet.
            unused = np.zeros(len(states))
            notes = {"value": unused, "ratio": unused}
            return Decision(self.behavior.probabilities(states), notes)
        decision = self.pi.decide(states)
        probabilities = np.where(waits, self.behavior.probabilities(states), decision.probabilities)
        return Decision(probabilities, decision.notes)
