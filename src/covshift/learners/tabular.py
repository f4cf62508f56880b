"""Tabular learners of the ratio, and of the ratio and the value together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from covshift.learners.blocks import count_visits, learn_ratio, learn_value
from covshift.learners.linear_value import LearnedRatio
from covshift.learners.online import refuse_episodes
from covshift.learners.schedules import Schedule
from covshift.rules import n_step_cop_target
from covshift.theory.simulation import Transition
from covshift.validation import Dense, as_table, check_count, check_discount

Steps: TypeAlias = tuple[NDArray[np.int64], Dense, NDArray[np.bool_]]
"""The state left, ρ there, and whether an episode started; each steps × seeds."""


@dataclass
class TabularRatioState:
    """A ratio table for each seed.

    Attributes:
        c: seeds × states, the ratios.
        visits: seeds × states, how often each state was updated.
        window: the last n - 1 steps, for n-step targets.
    """

    c: Dense
    visits: NDArray[np.int64]
    window: Steps


@final
@dataclass(frozen=True, eq=False)
class TabularRatio:
    """COP-TD (γ̂ = 1), discounted COP-TD, and their n-step forms (B4) on a table; eq. (4), (6).

    Args:
        rho: states × actions, π(a|s)/μ(a|s).
        ratio_discount: γ̂; 1 gives COP-TD.
        step_size: schedule over the number of earlier updates of a state.
        num_steps: n of the n-step target; early windows are shorter.
        normalize: after each step divide c by its mean over the states seen so far, which is
            normalized COP-TD with the empirical d_μ; for continuing streams.
        initial_ratio: the table before any data.
    """

    rho: Dense
    ratio_discount: float
    step_size: Schedule
    num_steps: int = 1
    normalize: bool = False
    initial_ratio: float = 1.0

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        check_count("num_steps", self.num_steps)
        object.__setattr__(self, "rho", as_table("rho", self.rho, (-1, -1)))

    def init(self, num_seeds: int) -> TabularRatioState:
        """Tables filled with `initial_ratio`."""
        shape = (num_seeds, self.rho.shape[0])
        empty = np.zeros((0, num_seeds))
        return TabularRatioState(
            np.full(shape, float(self.initial_ratio)),
            np.zeros(shape, dtype=np.int64),
            (empty.astype(np.int64), empty, empty.astype(np.bool_)),
        )

    def ratio(self, state: TabularRatioState) -> Dense:
        """seeds × states."""
        return state.c

    def update(self, state: TabularRatioState, block: Transition) -> None:
        """Each step of the block in turn, compiled unless `normalize` is set."""
        if self.normalize:
            for transition in block.steps():
                self.step(state, transition)
            return
        starts, rhos, initial = self._with_history(state, block)
        length, count = len(starts), len(block.s_t)
        window = np.maximum(np.arange(length - count, length) - self.num_steps + 1, 0)
        moved = np.concatenate([starts[: length - count], block.s_t])
        sizes = self.step_size(count_visits(state.visits, block.s_t))
        learn_ratio(
            state.c, None, starts, rhos, moved, initial, self.ratio_discount, sizes, window=window
        )

    def step(self, state: TabularRatioState, transition: Transition) -> None:
        """Moves c(s_t) towards the target from up to `num_steps` states before."""
        seeds = np.arange(len(state.c))
        one = Transition._make(field[None] for field in transition)
        starts, rhos, initial = self._with_history(state, one)
        target = n_step_cop_target(
            state.c[seeds, starts[0]], list(rhos), self.ratio_discount, is_initial=list(initial)
        )
        here = (seeds, transition.s_t)
        state.c[here] += self.step_size(state.visits[here]) * (target - state.c[here])
        state.visits[here] += 1
        if self.normalize:
            refuse_episodes(transition)
            mean = (state.visits * state.c).sum(axis=1) / state.visits.sum(axis=1)
            state.c /= np.where(mean > 0, mean, 1.0)[:, None]

    def _with_history(self, state: TabularRatioState, block: Transition) -> Steps:
        """The block's steps after those that its n-step targets reach back to; remembers the last ones."""
        new = (block.s_tm1, self.rho[block.s_tm1, block.a_tm1], block.is_initial_t)
        joined: Any = tuple(map(np.concatenate, zip(state.window, new, strict=True)))
        first = max(len(joined[0]) - self.num_steps + 1, 0)
        window: Any = tuple(column[first:] for column in joined)
        state.window = window
        return cast(Steps, joined)


@dataclass
class TabularCorrectedTDState:
    """A value table beside the ratio's state; `v` and `visits` are seeds × states."""

    ratio: TabularRatioState
    v: Dense
    visits: NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class TabularCorrectedTD:
    """Learns c and V together: TD whose steps are weighted by the learned c(s) and by ρ.

    Args:
        ratio: the learner of the ratio.
        discount: γ.
        step_size: schedule over the number of earlier updates of a state's value.
    """

    ratio: TabularRatio
    discount: float
    step_size: Schedule

    def __post_init__(self) -> None:
        check_discount("discount", self.discount)

    def init(self, num_seeds: int) -> TabularCorrectedTDState:
        """Values of 0."""
        shape = (num_seeds, self.ratio.rho.shape[0])
        return TabularCorrectedTDState(
            self.ratio.init(num_seeds), np.zeros(shape), np.zeros(shape, dtype=np.int64)
        )

    def update(self, state: TabularCorrectedTDState, block: Transition) -> None:
        """At each step the value learns with the ratio as it stands, then the ratio learns."""
        rho_tm1 = self.ratio.rho[block.s_tm1, block.a_tm1]
        weights = LearnedRatio(self.ratio).weights(state.ratio, rho_tm1, block)
        sizes = self.step_size(count_visits(state.visits, block.s_tm1))
        learn_value(state.v, None, block, self.discount, sizes, weights)
