"""Data, target policy and features together: what every estimator folds over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.policies import Policy
from covshift.errors import InputError
from covshift.estimation.behavior import Calibration, with_behavior
from covshift.estimation.features import Features, FeaturesLike, as_features
from covshift.estimation.inputs import Data, as_logs
from covshift.estimation.logs import BLOCK, Block, Logs
from covshift.estimation.policies import PolicyLike, as_policy
from covshift.rules import importance_ratio
from covshift.validation import Dense, Vector

Semantics: TypeAlias = Literal["continuing", "visits", "restart"]

_KEPT_NUMBERS = 30_000_000
"""Numbers of prepared samples that are kept in memory; larger data are prepared anew in each pass."""


class Sample(NamedTuple):
    """Prepared transitions.

    Attributes:
        x_tm1: features of the state before, or its number.
        a_tm1: the action.
        rho_tm1: π(a|s)/μ(a|s).
        pi_tm1: π(·|s), an entry an action.
        r_t: the reward.
        terminated_t: whether the episode ended.
        x_t: features or number of the state after; without meaning where the episode ended.
        pi_t: π(·|s').
        is_initial_tm1: whether the state before is a draw of d₀.
        trajectory: its number.
        weight: how often the transition counts.
    """

    x_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    rho_tm1: Vector
    pi_tm1: Dense
    r_t: Vector
    terminated_t: NDArray[np.bool_]
    x_t: NDArray[Any]
    pi_t: Dense
    is_initial_tm1: NDArray[np.bool_]
    trajectory: NDArray[np.int64]
    weight: Vector


@final
@dataclass(frozen=True, eq=False)
class Experience:
    """Logged data seen with a target policy.

    Args:
        logs: transitions with μ(a|s) of every action.
        policy: π.
        features: of the states.
        calibration: of μ, where it was estimated.
        weights: how often each trajectory counts; None is once. A bootstrap replicate is another weighting.
    """

    logs: Logs
    policy: Policy
    features: Features
    calibration: Calibration | None = None
    weights: Vector | None = None
    _kept: list[Sample] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        data: Data,
        policy: PolicyLike,
        *,
        features: FeaturesLike = None,
        behavior: PolicyLike | NDArray[np.float64] | None = None,
    ) -> Experience:
        """Brings what a user gives into form, and checks that π and μ overlap."""
        logs = as_logs(data)
        made = as_features(features, logs)
        completed = with_behavior(logs, made, behavior)
        target = as_policy(policy, logs.num_actions)
        experience = cls(completed.logs, target, made, completed.calibration)
        if not any((sample.rho_tm1 > 0).any() for sample in experience.samples()):
            raise InputError(
                f"the target policy gives probability 0 to all {len(logs):,} logged actions: the data say "
                "nothing about it"
            )
        return experience

    @property
    def is_tabular(self) -> bool:
        """Whether states are numbers."""
        return self.features.is_tabular

    @property
    def num_actions(self) -> int:
        """Of the environment."""
        return self.logs.num_actions

    def samples(self) -> Iterator[Sample]:
        """All transitions in order, prepared, a block at a time."""
        if not self._kept:
            width = 1 if self.is_tabular else self.features.size
            numbers = len(self.logs) * (2 * width + 2 * self.num_actions + 8)
            size = BLOCK if self.is_tabular else max(1024, BLOCK * 8 // width)
            prepared = (self._prepare(block) for block in self.logs.blocks(min(size, BLOCK)))
            if numbers > _KEPT_NUMBERS:
                yield from map(self._weigh, prepared)
                return
            self._kept.extend(prepared)
        yield from map(self._weigh, self._kept)

    def reweighted(self, weights: Vector) -> Experience:
        """The same data with other weights of the trajectories."""
        return replace(self, weights=weights)

    def select(self, trajectories: NDArray[np.bool_]) -> Experience:
        """Some trajectories alone."""
        weights = None if self.weights is None else self.weights[trajectories]
        return replace(self, logs=self.logs.select(trajectories), weights=weights, _kept=[])

    def resolve(self, semantics: Semantics | None) -> Semantics:
        """The semantics asked for, or `visits` where an episode terminated, else `continuing`."""
        if semantics is None:
            return "visits" if self.logs.has_episodes else "continuing"
        if semantics not in ("continuing", "visits", "restart"):
            raise InputError(
                f"semantics must be continuing, visits or restart, but it is {semantics}"
            )
        if semantics == "continuing" and self.logs.has_episodes:
            raise InputError(
                f"{int(self.logs.terminated.sum())} episodes terminated, so the data are not continuing; "
                "say visits or restart"
            )
        if semantics != "continuing" and not self.logs.is_initial.any():
            raise InputError(f"{semantics} needs initial states, but none is marked is_initial")
        return semantics

    def _prepare(self, block: Block) -> Sample:
        # What stands where an episode ended is no state; the policy and the features never see it.
        mask = block.terminated_t.reshape(-1, *[1] * (block.s_t.ndim - 1))
        s_t = np.where(mask, block.s_tm1, block.s_t)
        pi_tm1, pi_t = self.policy.probabilities(block.s_tm1), self.policy.probabilities(s_t)
        pi_a = pi_tm1[np.arange(len(block.a_tm1)), block.a_tm1]
        return Sample(
            self.features(block.s_tm1),
            block.a_tm1,
            importance_ratio(pi_a, block.mu_tm1),
            pi_tm1,
            block.r_t,
            block.terminated_t,
            self.features(s_t),
            pi_t,
            block.is_initial_tm1,
            block.trajectory,
            np.ones(len(block.a_tm1)),
        )

    def _weigh(self, sample: Sample) -> Sample:
        if self.weights is None:
            return sample
        return sample._replace(weight=self.weights[sample.trajectory])
