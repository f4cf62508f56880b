"""Linear learners of the value V̂(s) = φ(s)ᵀθ from off-policy data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np

from covshift.learners.online import Learner
from covshift.learners.prediction import features_of, predict
from covshift.learners.schedules import Schedule
from covshift.rules import (
    corrected_td_error,
    followon_trace,
    importance_weighted_td_error,
    linear_direction,
    td_error,
    tdc_correction,
)
from covshift.theory.simulation import Transition
from covshift.validation import Dense, Vector, as_table, as_vector, check_discount

StateT = TypeVar("StateT")


class Correction(Protocol[StateT]):
    """How the TD error of one step counts."""

    def init(self, num_seeds: int) -> StateT:
        """The correction's own state."""

    def correct(
        self, state: StateT, error: Vector, rho_tm1: Vector, transition: Transition
    ) -> Vector:
        """The weighted error; updates the state in place."""


@final
class NoCorrection:
    """Plain semi-gradient TD: right only where the data are on-policy."""

    def init(self, num_seeds: int) -> None:
        """Nothing to keep."""

    def correct(
        self,
        state: None,
        error: Vector,
        rho_tm1: Vector,
        transition: Transition,
    ) -> Vector:
        """The error as it is."""
        return error


@final
class RhoOnly:
    """ρ-corrected TD: the right expected target, under the wrong distribution of states."""

    def init(self, num_seeds: int) -> None:
        """Nothing to keep."""

    def correct(
        self,
        state: None,
        error: Vector,
        rho_tm1: Vector,
        transition: Transition,
    ) -> Vector:
        """ρ times the error."""
        return importance_weighted_td_error(error, rho_tm1)


@final
@dataclass(frozen=True, eq=False)
class ExactRatio:
    """c·ρ-corrected TD with a ratio that is known, one entry a state."""

    c: Vector

    def init(self, num_seeds: int) -> None:
        """Nothing to keep."""

    def correct(
        self,
        state: None,
        error: Vector,
        rho_tm1: Vector,
        transition: Transition,
    ) -> Vector:
        """c(s) ρ times the error."""
        return corrected_td_error(error, rho_tm1, self.c[transition.s_tm1])


class RatioLearner(Learner[StateT], Protocol[StateT]):
    """A learner that can tell its ratios."""

    def ratio(self, state: StateT) -> Dense:
        """seeds × states."""


@final
@dataclass(frozen=True, eq=False)
class LearnedRatio(Generic[StateT]):
    """c·ρ-corrected TD with a ratio that is learned from the same stream, clipped at 0."""

    learner: RatioLearner[StateT]

    def init(self, num_seeds: int) -> StateT:
        """The ratio learner's state."""
        return self.learner.init(num_seeds)

    def correct(
        self, state: StateT, error: Vector, rho_tm1: Vector, transition: Transition
    ) -> Vector:
        """Uses the ratio as it stands, then lets it learn."""
        c = self.learner.ratio(state)[np.arange(len(error)), transition.s_tm1]
        corrected = corrected_td_error(error, rho_tm1, np.maximum(c, 0.0))
        self.learner.step(state, transition)
        return corrected


@final
@dataclass(frozen=True)
class Emphasis:
    """Emphatic TD(0) with unit interest: weighs by the follow-on trace F and ρ.

    Args:
        trace_discount: β of the trace; γ is emphatic TD as published, γ̂ makes (1 - γ̂)F an unbiased
            sample of c(s) on a continuing stream (B2).
    """

    trace_discount: float

    def __post_init__(self) -> None:
        check_discount("trace_discount", self.trace_discount)

    def init(self, num_seeds: int) -> Vector:
        """The trace at a first state."""
        return np.ones(num_seeds)

    def correct(
        self, state: Vector, error: Vector, rho_tm1: Vector, transition: Transition
    ) -> Vector:
        """F ρ times the error, then the trace moves on; it starts anew with an episode."""
        corrected = corrected_td_error(error, rho_tm1, state)
        following = followon_trace(state, rho_tm1, self.trace_discount)
        state[:] = np.where(transition.is_initial_t, 1.0, following)
        return corrected


@dataclass
class LinearTDState(Generic[StateT]):
    """Weights `theta`, seeds × features, the correction's state and the count of steps."""

    theta: Dense
    correction: StateT
    count: int = 0


@final
@dataclass(frozen=True, eq=False)
class LinearTD(Generic[StateT]):
    """Semi-gradient TD(0), eq. (2), whose error a correction weighs.

    Args:
        phi: states × features.
        rho: states × actions, π(a|s)/μ(a|s).
        discount: γ.
        step_size: schedule over steps.
        correction: `NoCorrection`, `RhoOnly`, `ExactRatio`, `LearnedRatio` or `Emphasis`.
        initial_weights: θ before any data.
    """

    phi: Dense
    rho: Dense
    discount: float
    step_size: Schedule
    correction: Correction[StateT]
    initial_weights: Vector | None = None

    def __post_init__(self) -> None:
        _check_linear(self)

    def init(self, num_seeds: int) -> LinearTDState[StateT]:
        """The same weights for every seed."""
        theta = _initial_weights(self.phi, self.initial_weights, num_seeds)
        return LinearTDState(theta, self.correction.init(num_seeds))

    def value(self, state: LinearTDState[StateT]) -> Dense:
        """seeds × states."""
        return np.asarray(state.theta @ self.phi.T)

    def step(self, state: LinearTDState[StateT], transition: Transition) -> None:
        """Moves the weights along φ(s_tm1)."""
        rho_tm1 = self.rho[transition.s_tm1, transition.a_tm1]
        phi_tm1, error = _features_and_error(self.phi, state.theta, self.discount, transition)
        error = self.correction.correct(state.correction, error, rho_tm1, transition)
        state.theta += self.step_size(state.count) * linear_direction(error, phi_tm1)
        state.count += 1


@dataclass
class TDCState:
    """Weights `theta` and auxiliary weights `h`, both seeds × features."""

    theta: Dense
    h: Dense
    count: int = 0


@final
@dataclass(frozen=True, eq=False)
class TDC:
    """TD with gradient correction (Sutton et al., 2009): converges off-policy, to Π_{d_μ}'s point.

    Args:
        phi: states × features.
        rho: states × actions.
        discount: γ.
        step_size: schedule of the weights.
        auxiliary_step_size: schedule of the auxiliary weights, larger than the first.
        initial_weights: θ before any data.
    """

    phi: Dense
    rho: Dense
    discount: float
    step_size: Schedule
    auxiliary_step_size: Schedule
    initial_weights: Vector | None = None

    def __post_init__(self) -> None:
        _check_linear(self)

    def init(self, num_seeds: int) -> TDCState:
        """The same weights for every seed."""
        theta = _initial_weights(self.phi, self.initial_weights, num_seeds)
        return TDCState(theta, np.zeros_like(theta))

    def value(self, state: TDCState) -> Dense:
        """seeds × states."""
        return np.asarray(state.theta @ self.phi.T)

    def step(self, state: TDCState, transition: Transition) -> None:
        """θ += α(ρδφ - ργ(φᵀh)φ'), h += β(ρδ - φᵀh)φ."""
        rho_tm1 = self.rho[transition.s_tm1, transition.a_tm1]
        phi_tm1, error = _features_and_error(self.phi, state.theta, self.discount, transition)
        weighted = importance_weighted_td_error(error, rho_tm1)
        phi_t, discount_t = (
            features_of(self.phi, transition.s_t),
            transition.discount_t(self.discount),
        )
        direction = linear_direction(weighted, phi_tm1)
        direction += tdc_correction(state.h, phi_tm1, phi_t, rho_tm1, discount_t)
        residual = weighted - predict(phi_tm1, state.h)
        state.theta += self.step_size(state.count) * direction
        state.h += self.auxiliary_step_size(state.count) * linear_direction(residual, phi_tm1)
        state.count += 1


def _initial_weights(phi: Dense, initial: Vector | None, num_seeds: int) -> Dense:
    start = np.zeros(phi.shape[1]) if initial is None else initial
    return np.tile(as_vector("initial_weights", start, phi.shape[1]), (num_seeds, 1))


def _check_linear(learner: LinearTD[Any] | TDC) -> None:
    check_discount("discount", learner.discount)
    object.__setattr__(learner, "rho", as_table("rho", learner.rho, (-1, -1)))
    object.__setattr__(learner, "phi", as_table("phi", learner.phi, (len(learner.rho), -1)))


def _features_and_error(
    phi: Dense, theta: Dense, discount: float, transition: Transition
) -> tuple[Dense, Vector]:
    phi_tm1 = features_of(phi, transition.s_tm1)
    v_tm1, v_t = predict(phi_tm1, theta), predict(features_of(phi, transition.s_t), theta)
    return phi_tm1, td_error(v_tm1, transition.r_t, transition.discount_t(discount), v_t)
