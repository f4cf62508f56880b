"""Data, target policy and features together, in the form that every estimator sums over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.policies import Policy
from covshift.errors import InputError
from covshift.estimation.behavior import BehaviorLike, Calibration, with_behavior
from covshift.estimation.features import Features, FeaturesLike, as_features
from covshift.estimation.inputs import Data, as_logs
from covshift.estimation.logs import BLOCK, Logs
from covshift.estimation.merging import MergedTransitions
from covshift.estimation.policies import PolicyLike, as_policy
from covshift.estimation.sample import Sample
from covshift.rules import importance_ratio
from covshift.validation import Vector

EpisodeSemantics: TypeAlias = Literal["continuing", "visits", "restart"]
"""How episodes count in d_π and d_μ.

`continuing`: there are none, and both are stationary distributions. `visits`: they count the visits to a state
per episode. `restart`: where an episode ends the next one starts, and both are stationary distributions again.
"""

ResultT = TypeVar("ResultT")

_KEPT_NUMBERS = 30_000_000
"""The most numbers of prepared samples to keep in memory; larger data are prepared again in each pass."""


@final
@dataclass(frozen=True, eq=False)
class Experience:
    """Logged data seen with a target policy.

    Args:
        logs: transitions with μ(a|s) of every action.
        policy: the target policy π.
        features: features of the states.
        calibration: how well μ is calibrated, if it was estimated.
        weights: how often each trajectory counts; None for once each. A bootstrap replicate is another weighting.
    """

    logs: Logs
    policy: Policy
    features: Features
    calibration: Calibration | None = None
    weights: Vector | None = None
    _kept: list[Sample] = field(default_factory=list, repr=False)
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False)
    _own: dict[Any, Any] = field(default_factory=dict, repr=False)
    _batch: list[Experience] = field(default_factory=list, repr=False)
    _origin: Experience | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        data: Data,
        policy: PolicyLike,
        *,
        features: FeaturesLike = None,
        behavior: BehaviorLike = None,
    ) -> Experience:
        """Prepares a user's data and policy, and checks that π takes some of the logged actions."""
        given = as_logs(data)
        made = as_features(features, given)
        logs, calibration = with_behavior(given, made, behavior)
        experience = cls(logs, as_policy(policy, logs.num_actions, logs), made, calibration)
        if not any((sample.rho_tm1 > 0).any() for sample in experience.samples()):
            raise InputError(
                f"the target policy gives probability 0 to all {logs.num_transitions:,} logged actions: the "
                "data say nothing about it"
            )
        return experience

    @property
    def is_tabular(self) -> bool:
        """Whether states are numbers of a table's rows."""
        return self.features.is_tabular

    @property
    def num_actions(self) -> int:
        """The number of actions of the environment."""
        return self.logs.num_actions

    @property
    def trajectory_weights(self) -> Vector:
        """How often each trajectory counts."""
        return np.ones(len(self.logs)) if self.weights is None else self.weights

    def samples(self) -> Iterator[Sample]:
        """All transitions in order, prepared, one batch at a time."""
        if not self._kept:
            width = 1 if self.is_tabular else self.features.size
            numbers = self.logs.num_transitions * (2 * width + 2 * self.num_actions + 8)
            size = BLOCK if self.is_tabular else max(1024, BLOCK * 8 // width)
            prepared = (self._prepare(rows) for rows in self.logs.blocks(min(size, BLOCK)))
            if numbers > _KEPT_NUMBERS:
                yield from map(self.weigh, prepared)
                return
            self._kept.extend(prepared)
        yield from map(self.weigh, self._kept)

    def merged(self) -> Iterator[Sample]:
        """All transitions for sums that need neither their order nor their trajectories.

        Equal transitions of a weighted table are one row with the sum of their weights and their mean reward. So another weighting
        costs one sparse product and not a pass over the data.
        """
        if not self.is_tabular or (self.weights is None and self.logs.mapper is None):
            yield from self.samples()
            return
        found = self.shared("merged transitions", self._merge)
        yield self.once("merged", lambda: found.weighed(self.trajectory_weights))

    def reweighted(self, weights: Vector) -> Experience:
        """The same data with other weights for the trajectories."""
        return replace(self, weights=weights, _own={}, _batch=[], _origin=None)

    def batch(self, weights: Sequence[Vector]) -> list[Experience]:
        """The same data with each of these weights, of which `together` computes results in one pass."""
        made: list[Experience] = []
        made.extend(replace(self, weights=w, _own={}, _batch=made, _origin=self) for w in weights)
        return made

    @property
    def origin(self) -> Experience:
        """The data whose batch this weighting belongs to; itself if to none."""
        return self if self._origin is None else self._origin

    def shared(self, key: Any, make: Callable[[], ResultT]) -> ResultT:
        """A result that does not depend on the weights, computed once for all weightings of these data."""
        if key not in self._shared:
            self._shared[key] = make()
        return cast(ResultT, self._shared[key])

    def once(self, key: Any, make: Callable[[], ResultT]) -> ResultT:
        """A result for these weights, computed once for all estimators that need it."""
        if key not in self._own:
            self._own[key] = make()
        return cast(ResultT, self._own[key])

    def together(
        self, key: Any, make: Callable[[list[Experience]], Sequence[ResultT | InputError]]
    ) -> ResultT:
        """A result for these weights, computed for the whole batch when the first of it is asked.

        Raises:
            InputError: the result for these weights is this error.
        """
        if key not in self._own:
            batch = self._batch or [self]
            for member, result in zip(batch, make(batch), strict=True):
                member._own[key] = result
        if isinstance(found := self._own[key], InputError):
            raise found
        return cast(ResultT, found)

    def select(self, trajectories: NDArray[np.bool_]) -> Experience:
        """The trajectories that a mask or a list of numbers picks."""
        weights = None if self.weights is None else self.weights[trajectories]
        return self._changed(logs=self.logs[trajectories], weights=weights)

    def with_features(self, features: Features) -> Experience:
        """The same data with other features of the states."""
        return self._changed(features=features)

    def _changed(self, **changed: Any) -> Experience:
        """Other data, of which nothing is computed yet."""
        fresh: dict[str, Any] = {
            "_kept": [],
            "_shared": {},
            "_own": {},
            "_batch": [],
            "_origin": None,
        }
        return replace(self, **fresh | changed)

    def resolve(self, semantics: EpisodeSemantics | None) -> EpisodeSemantics:
        """The semantics asked for, checked; by default `visits` if an episode terminated, else `continuing`."""
        if semantics is None:
            return "visits" if self.logs.has_episodes else "continuing"
        if semantics not in ("continuing", "visits", "restart"):
            raise InputError(
                f"semantics must be continuing, visits or restart, but they are {semantics}"
            )
        if semantics == "continuing" and self.logs.has_episodes:
            raise InputError(
                f"{int(self.logs.terminated.sum())} episodes terminated, so the data are not continuing; "
                "say visits or restart"
            )
        if semantics != "continuing" and not self.logs.is_initial.any():
            raise InputError(f"{semantics} needs initial states, but none is marked is_initial")
        return semantics

    def _prepare(self, rows: NDArray[np.int64]) -> Sample:
        logs = self.logs
        s_tm1, s_t, ended = logs.states(rows), logs.next_states(rows), logs.terminated[rows]
        # After an episode's end there is no state; the policy and the features see the one before instead.
        s_t = np.where(ended.reshape(-1, *[1] * (s_t.ndim - 1)), s_tm1, s_t)
        a_tm1 = logs.action[rows].astype(np.int64)
        pi_tm1 = self.policy.probabilities(s_tm1)
        mu_tm1 = np.asarray(logs.mu)[rows].astype(np.float64)
        return Sample(
            self.features(s_tm1),
            a_tm1,
            importance_ratio(pi_tm1[np.arange(len(rows)), a_tm1], mu_tm1),
            pi_tm1,
            logs.reward[rows].astype(np.float64),
            ended,
            self.features(s_t),
            self.policy.probabilities(s_t),
            logs.is_initial[rows],
            logs.trajectory[rows].astype(np.int64),
            np.ones(len(rows)),
        )

    def _merge(self) -> MergedTransitions:
        if (mapper := self.logs.mapper) is not None:
            parts = mapper.map(self, Experience._merge, [()] * len(mapper.bounds))
            return MergedTransitions.join(parts, self.features.size)
        plain = replace(self, weights=None)
        return MergedTransitions.of(plain.samples(), self.features.size, len(self.logs))

    def weigh(self, sample: Sample) -> Sample:
        """A sample of the same data with the weights of these trajectories."""
        if self.weights is None:
            return sample
        return sample._replace(weight=self.weights[sample.trajectory])
