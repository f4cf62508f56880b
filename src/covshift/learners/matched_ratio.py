"""A linear learner of a positive ratio by its matching loss (B7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from covshift.errors import InputError
from covshift.learners.blocks import match_ratio
from covshift.learners.prediction import features_of, predict, tile_weights
from covshift.learners.schedules import Schedule
from covshift.rules import (
    LINKS,
    arrival_target,
    floored_ratio,
    linear_direction,
    matching_gradient,
)
from covshift.theory.projections import project_span
from covshift.theory.simulation import Transition
from covshift.validation import Dense, Vector, as_table, check_discount


@dataclass
class MatchedRatioState:
    """Weights `w`, seeds × features, and the number of steps so far."""

    w: Dense
    count: int = 0


@final
@dataclass(frozen=True, eq=False)
class MatchedRatio:
    """Discounted COP-TD for ĉ = 1 - γ̂ + γ̂ g(φᵀw): the score moves by g - ρĉ(s), the matching loss's gradient.

    Where LinearRatio can be negative and diverge, ĉ is at least 1 - γ̂, and where the expected step is 0 its mean is that
    of its targets. A constant step size lets the mean wander around that, the more the larger γ̂ is.

    Args:
        phi: states × features, some combination of which is 1 everywhere.
        rho: states × actions, π(a|s)/μ(a|s).
        ratio_discount: γ̂; 1 needs a stream without episodes.
        step_size: schedule over steps.
        link: g; the exponential has the guarantees of B7, the safe link bears larger steps.
        initial_weights: w before any data; zeros, which are ĉ = 1, where None is given.
    """

    phi: Dense
    rho: Dense
    ratio_discount: float
    step_size: Schedule
    link: Literal["exponential", "safe"] = "exponential"
    initial_weights: Vector | None = None

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        object.__setattr__(self, "rho", as_table("rho", self.rho, (-1, -1)))
        object.__setattr__(self, "phi", as_table("phi", self.phi, (len(self.rho), -1)))
        if self.link not in LINKS:
            raise InputError(f"link must be exponential or safe, but it is {self.link}")
        ones = np.ones(len(self.phi))
        gap = float(np.abs(project_span(ones, self.phi, ones) - 1.0).max())
        if gap > 1e-8:
            raise InputError(
                f"phi has no bias, so that the mean ratio is not kept: the combination nearest to 1 misses it by {gap:.3g}; "
                "add a column of ones"
            )

    def init(self, num_seeds: int) -> MatchedRatioState:
        """The same weights for every seed."""
        return MatchedRatioState(tile_weights(self.phi, self.initial_weights, num_seeds))

    def ratio(self, state: MatchedRatioState) -> Dense:
        """seeds × states."""
        return self._ratio(np.asarray(state.w @ self.phi.T))

    def update(self, state: MatchedRatioState, block: Transition) -> None:
        """Each step of the block in turn, compiled."""
        self._refuse_unbounded(block)
        highest = match_ratio(
            state.w,
            self.phi,
            block.s_tm1,
            self.rho[block.s_tm1, block.a_tm1],
            block.s_t,
            block.is_initial_t,
            self.ratio_discount,
            self.step_size(np.arange(state.count, state.count + len(block.s_t))),
            is_safe=self.link == "safe",
        )
        LINKS[self.link].ratio(np.array([highest]))  # Refuses a score that overflows.
        state.count += len(block.s_t)

    def step(self, state: MatchedRatioState, transition: Transition) -> None:
        """Moves the weights along φ(s_t)."""
        self._refuse_unbounded(transition)
        phi_tm1, phi_t = (features_of(self.phi, s) for s in (transition.s_tm1, transition.s_t))
        c_tm1 = self._ratio(predict(phi_tm1, state.w))
        rho_tm1 = self.rho[transition.s_tm1, transition.a_tm1]
        target = arrival_target(c_tm1, [rho_tm1], self.ratio_discount, [transition.is_initial_t])
        gradient = matching_gradient(predict(phi_t, state.w), target, LINKS[self.link])
        state.w -= self.step_size(state.count) * linear_direction(gradient, phi_t)
        state.count += 1

    def _ratio(self, z: Dense) -> Dense:
        return floored_ratio(LINKS[self.link].ratio(z), self.ratio_discount)

    def _refuse_unbounded(self, block: Transition) -> None:
        if self.ratio_discount == 1.0 and block.is_initial_t.any():
            raise InputError(
                "nothing bounds the mean of a ratio that counts visits at ratio_discount = 1: use a ratio_discount below 1, "
                "or `Problem.restart()`"
            )
