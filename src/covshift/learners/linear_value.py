"""Linear learners of the value V̂(s) = φ(s)ᵀθ from off-policy data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np

from covshift.learners.blocks import learn_value
from covshift.learners.prediction import features_of, predict, tile_weights
from covshift.learners.schedules import Schedule
from covshift.rules import followon_trace, linear_direction, td_correction, td_error, tdc_correction
from covshift.theory.simulation import Transition
from covshift.validation import Dense, Vector, as_table, check_discount

StateT = TypeVar("StateT")


class Correction(Protocol[StateT]):
    """How much the TD error of each step counts."""

    def init(self, num_seeds: int) -> StateT:
        """The correction's own state."""

    def weights(self, state: StateT, rho_tm1: Dense, block: Transition) -> Dense:
        """The factor of each TD error of a block, steps × seeds; updates the state in place."""


@final
class NoCorrection:
    """Plain semi-gradient TD: right only where the data are on-policy."""

    def init(self, num_seeds: int) -> None:
        """Nothing to keep."""

    def weights(self, state: None, rho_tm1: Dense, block: Transition) -> Dense:
        """1."""
        return np.ones_like(rho_tm1)


@final
class RhoOnly:
    """ρ-corrected TD: the right expected target, under the wrong distribution of states."""

    def init(self, num_seeds: int) -> None:
        """Nothing to keep."""

    def weights(self, state: None, rho_tm1: Dense, block: Transition) -> Dense:
        """ρ."""
        return rho_tm1


@final
@dataclass(frozen=True, eq=False)
class ExactRatio:
    """c·ρ-corrected TD with a ratio `c` that is known for each state."""

    c: Vector

    def init(self, num_seeds: int) -> None:
        """Nothing to keep."""

    def weights(self, state: None, rho_tm1: Dense, block: Transition) -> Dense:
        """c(s) ρ."""
        return td_correction(rho_tm1, self.c[block.s_tm1])


class OnlineRatioLearner(Protocol[StateT]):
    """A learner of the ratio that can be asked for it after every step."""

    def init(self, num_seeds: int) -> StateT:
        """The state before any data."""

    def step(self, state: StateT, transition: Transition) -> None:
        """Updates the state in place with one transition of every seed."""

    def ratio(self, state: StateT) -> Dense:
        """seeds × states."""


@final
@dataclass(frozen=True, eq=False)
class LearnedRatio(Generic[StateT]):
    """c·ρ-corrected TD with a ratio that is learned from the same stream, clipped at 0."""

    learner: OnlineRatioLearner[StateT]

    def init(self, num_seeds: int) -> StateT:
        """The ratio learner's state."""
        return self.learner.init(num_seeds)

    def weights(self, state: StateT, rho_tm1: Dense, block: Transition) -> Dense:
        """c(s) ρ with the ratio as it is before each step, from which it then learns."""
        c_tm1, seeds = np.empty_like(rho_tm1), np.arange(rho_tm1.shape[1])
        for t, transition in enumerate(block.steps()):
            c_tm1[t] = self.learner.ratio(state)[seeds, transition.s_tm1]
            self.learner.step(state, transition)
        return td_correction(rho_tm1, np.maximum(c_tm1, 0.0))


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

    def weights(self, state: Vector, rho_tm1: Dense, block: Transition) -> Dense:
        """F ρ; the trace starts again from 1 with an episode."""
        trace = np.empty_like(rho_tm1)
        for t, is_initial_t in enumerate(block.is_initial_t):
            trace[t] = state
            following = followon_trace(state, rho_tm1[t], self.trace_discount)
            state[:] = np.where(is_initial_t, 1.0, following)
        return td_correction(rho_tm1, trace)


@dataclass
class LinearTDState(Generic[StateT]):
    """Weights `theta`, seeds × features, the correction's state and the count of steps."""

    theta: Dense
    correction: StateT
    count: int = 0


@final
@dataclass(frozen=True, eq=False)
class LinearTD(Generic[StateT]):
    """Semi-gradient TD(0), eq. (2), with a correction of its errors.

    Args:
        phi: states × features.
        rho: states × actions, π(a|s)/μ(a|s).
        discount: γ.
        step_size: schedule over steps.
        correction: `NoCorrection`, `RhoOnly`, `ExactRatio`, `LearnedRatio` or `Emphasis`.
        initial_weights: θ before any data; zeros where None is given.
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
        theta = tile_weights(self.phi, self.initial_weights, num_seeds)
        return LinearTDState(theta, self.correction.init(num_seeds))

    def value(self, state: LinearTDState[StateT]) -> Dense:
        """seeds × states."""
        return np.asarray(state.theta @ self.phi.T)

    def update(self, state: LinearTDState[StateT], block: Transition) -> None:
        """θ += α · weight · δ · φ(s_tm1) with the TD error δ, for each step of the block in turn."""
        rho_tm1 = self.rho[block.s_tm1, block.a_tm1]
        weights = self.correction.weights(state.correction, rho_tm1, block)
        sizes = self.step_size(np.arange(state.count, state.count + len(weights)))
        learn_value(state.theta, self.phi, block, self.discount, sizes, weights)
        state.count += len(weights)


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
        rho: states × actions, π(a|s)/μ(a|s).
        discount: γ.
        step_size: schedule of the weights.
        auxiliary_step_size: schedule of the auxiliary weights, larger than the first.
        initial_weights: θ before any data; zeros where None is given.
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
        theta = tile_weights(self.phi, self.initial_weights, num_seeds)
        return TDCState(theta, np.zeros_like(theta))

    def value(self, state: TDCState) -> Dense:
        """seeds × states."""
        return np.asarray(state.theta @ self.phi.T)

    def update(self, state: TDCState, block: Transition) -> None:
        """θ += α(ρδφ - ργ(φᵀh)φ'), h += β(ρδ - φᵀh)φ for each step of the block in turn."""
        rho = self.rho[block.s_tm1, block.a_tm1]
        for rho_tm1, transition in zip(rho, block.steps(), strict=True):
            phi_tm1, phi_t = (features_of(self.phi, s) for s in (transition.s_tm1, transition.s_t))
            discount_t = transition.discount_t(self.discount)
            v_tm1, v_t = predict(phi_tm1, state.theta), predict(phi_t, state.theta)
            weighted = rho_tm1 * td_error(v_tm1, transition.r_t, discount_t, v_t)
            direction = linear_direction(weighted, phi_tm1)
            direction += tdc_correction(state.h, phi_tm1, phi_t, rho_tm1, discount_t)
            residual = weighted - predict(phi_tm1, state.h)
            state.theta += self.step_size(state.count) * direction
            state.h += self.auxiliary_step_size(state.count) * linear_direction(residual, phi_tm1)
            state.count += 1


def _check_linear(learner: LinearTD[Any] | TDC) -> None:
    check_discount("discount", learner.discount)
    object.__setattr__(learner, "rho", as_table("rho", learner.rho, (-1, -1)))
    object.__setattr__(learner, "phi", as_table("phi", learner.phi, (len(learner.rho), -1)))
