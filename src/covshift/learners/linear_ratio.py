"""Linear learners of the ratio ĉ(s) = φ(s)ᵀw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.learners.blocks import count_visits, learn_ratio
from covshift.learners.online import refuse_episodes
from covshift.learners.prediction import features_of, predict, tile_weights
from covshift.learners.schedules import Schedule
from covshift.rules import (
    discounted_cop_target,
    initial_state_target,
    inverse_ratio_weight,
    leave_one_out_residual,
    linear_direction,
)
from covshift.theory.projections import project_weighted_simplex
from covshift.theory.simulation import Transition
from covshift.validation import Dense, Vector, as_table, check_discount


@dataclass
class LinearRatioState:
    """Weights for each seed, and what the variants need.

    Attributes:
        w: seeds × features.
        visits: seeds × states, how often each state was visited.
        mean_weight: for each seed the running mean of the loss weights 1/c.
        has_episodes: whether an episode has started, whose target 1 fixes the scale of the ratio.
        count: steps so far.
        rng: for the batches of the soft normalization.
    """

    w: Dense
    visits: NDArray[np.int64]
    mean_weight: Vector
    has_episodes: bool = False
    count: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))


class Constraint(Protocol):
    """A set of weights for which ĉ can be a ratio of distributions."""

    def project(self, w: Dense, phi: Dense, visits: NDArray[np.int64]) -> Dense:
        """The nearest weights in the set, for each seed."""


@final
@dataclass(frozen=True, eq=False)
class ExactSimplex:
    """Projects onto W_{Φ,d_μ} with the true d_μ, at every state."""

    d_mu: Vector

    def project(self, w: Dense, phi: Dense, visits: NDArray[np.int64]) -> Dense:
        """One quadratic program per seed."""
        return np.stack([project_weighted_simplex(row, phi, self.d_mu) for row in w])


@final
@dataclass(frozen=True)
class SampledSimplex:
    """Projects onto the simplex of the states visited so far, as Hallak & Mannor recommend."""

    def project(self, w: Dense, phi: Dense, visits: NDArray[np.int64]) -> Dense:
        """One quadratic program per seed, over the states that it has visited."""
        projected = np.empty_like(w)
        for seed, counts in enumerate(visits):
            visited = counts > 0
            share = counts[visited] / counts.sum()
            projected[seed] = project_weighted_simplex(w[seed], phi[visited], share)
        return projected


@final
@dataclass(frozen=True)
class SoftNormalization:
    """The normalization loss with Theorem 5's gradient, on states drawn at each step from those visited.

    Args:
        weight: factor of the loss; the ratio's own loss has factor 1.
        batch_size: m of Theorem 5.
    """

    weight: float
    batch_size: int = 16

    def direction(
        self, w: Dense, phi: Dense, visits: NDArray[np.int64], rng: np.random.Generator
    ) -> Dense:
        """Minus the estimated gradient, for each seed."""
        share = np.cumsum(visits, axis=1) / visits.sum(axis=1, keepdims=True)
        u = rng.random((len(w), self.batch_size))
        states = (share[:, None, :] <= u[:, :, None]).sum(axis=2)
        features = phi[states]
        residual = leave_one_out_residual((features * w[:, None, :]).sum(axis=2))
        return np.asarray(-self.weight * linear_direction(residual, features).mean(axis=1))


@final
@dataclass(frozen=True, eq=False)
class LinearRatio:
    """Semi-gradient discounted COP-TD with linear features, and its variants.

    Args:
        phi: states × features.
        rho: states × actions, π(a|s)/μ(a|s).
        ratio_discount: γ̂; 1 with a constraint is COP-TD as Hallak & Mannor state it.
        step_size: schedule over steps.
        constraint: a simplex to project the weights onto after each step.
        normalization: a soft alternative to the constraint.
        weight_floor: δ of the 1/c weighting (B1): each squared error has the weight 1/max(ĉ(s'), δ) over its
            running mean; None weighs all alike. Since c ≥ 1 - γ̂, a δ of at most 1 - γ̂ changes no exact weight.
        initial_weights: w before any data; zeros where None is given.
    """

    phi: Dense
    rho: Dense
    ratio_discount: float
    step_size: Schedule
    constraint: Constraint | None = None
    normalization: SoftNormalization | None = None
    weight_floor: float | None = None
    initial_weights: Vector | None = None

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        object.__setattr__(self, "rho", as_table("rho", self.rho, (-1, -1)))
        object.__setattr__(self, "phi", as_table("phi", self.phi, (len(self.rho), -1)))
        if self.weight_floor is not None and not self.weight_floor > 0:
            raise InputError(f"weight_floor must be positive, but it is {self.weight_floor}")

    def init(self, num_seeds: int) -> LinearRatioState:
        """The same weights for every seed."""
        return LinearRatioState(
            w=tile_weights(self.phi, self.initial_weights, num_seeds),
            visits=np.zeros((num_seeds, len(self.phi)), dtype=np.int64),
            mean_weight=np.zeros(num_seeds),
        )

    def ratio(self, state: LinearRatioState) -> Dense:
        """seeds × states.

        The 1/c weighting loses the scale (B1), so there max(ĉ, 0) is rescaled to mean 1 over the states visited; not
        if there are episodes, since the target 1 of their initial states keeps the scale.
        """
        ratio = np.asarray(state.w @ self.phi.T)
        if self.weight_floor is None or state.count == 0 or state.has_episodes:
            return ratio
        mean = (state.visits * np.maximum(ratio, 0.0)).sum(axis=1) / state.visits.sum(axis=1)
        return np.asarray(ratio / np.where(mean > 0, mean, 1.0)[:, None])

    def update(self, state: LinearRatioState, block: Transition) -> None:
        """Each step of the block in turn, compiled unless there is a constraint or a normalization."""
        if self.constraint is not None or self.normalization is not None:
            for transition in block.steps():
                self.step(state, transition)
            return
        count_visits(state.visits, block.s_t)
        learn_ratio(
            state.w,
            self.phi,
            block.s_tm1,
            self.rho[block.s_tm1, block.a_tm1],
            block.s_t,
            block.is_initial_t,
            self.ratio_discount,
            self.step_size(np.arange(state.count, state.count + len(block.s_t))),
            floor=self.weight_floor,
            mean_weight=state.mean_weight,
            count=state.count,
        )
        state.has_episodes |= bool(block.is_initial_t.any())
        state.count += len(block.s_t)

    def step(self, state: LinearRatioState, transition: Transition) -> None:
        """Moves the weights along φ(s_t)."""
        phi_tm1, phi_t = (features_of(self.phi, s) for s in (transition.s_tm1, transition.s_t))
        rho_tm1 = self.rho[transition.s_tm1, transition.a_tm1]
        c_tm1, c_t = predict(phi_tm1, state.w), predict(phi_t, state.w)
        target = discounted_cop_target(c_tm1, rho_tm1, self.ratio_discount)
        error = initial_state_target(target, transition.is_initial_t) - c_t
        state.visits[np.arange(len(state.w)), transition.s_t] += 1
        direction = linear_direction(error * self._loss_weight(state, c_t), phi_t)
        state.has_episodes |= bool(transition.is_initial_t.any())
        if self.normalization is not None:
            refuse_episodes(transition)
            direction += self.normalization.direction(state.w, self.phi, state.visits, state.rng)
        state.w += self.step_size(state.count) * direction
        state.count += 1
        if self.constraint is not None:
            state.w = self.constraint.project(state.w, self.phi, state.visits)

    def _loss_weight(self, state: LinearRatioState, c_t: Vector) -> Vector:
        if self.weight_floor is None:
            return np.ones_like(c_t)
        weight = inverse_ratio_weight(c_t, self.weight_floor)
        state.mean_weight += (weight - state.mean_weight) / (state.count + 1)
        return np.asarray(weight / state.mean_weight)
