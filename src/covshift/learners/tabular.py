"""Tabular learners of the ratio, and of the ratio and the value together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from covshift.learners.online import refuse_episodes
from covshift.learners.schedules import Schedule
from covshift.rules import corrected_td_error, n_step_cop_target, td_error
from covshift.theory.simulation import Transition
from covshift.validation import Dense, Vector, as_table, check_count, check_discount


@dataclass
class TabularRatioState:
    """A ratio table for each seed.

    Attributes:
        c: seeds × states, the ratios.
        visits: seeds × states, how often each state was updated.
        window: the last steps, oldest first, as (state left, ρ there, whether an episode started).
    """

    c: Dense
    visits: NDArray[np.int64]
    window: deque[tuple[NDArray[np.int64], Vector, NDArray[np.bool_]]] = field(
        default_factory=deque
    )


@final
@dataclass(frozen=True, eq=False)
class TabularRatio:
    """COP-TD (γ̂ = 1), discounted COP-TD, and their n-step forms on a table; eq. (4), (6), B4.

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
        return TabularRatioState(
            np.full(shape, float(self.initial_ratio)), np.zeros(shape, dtype=int)
        )

    def ratio(self, state: TabularRatioState) -> Dense:
        """seeds × states."""
        return state.c

    def step(self, state: TabularRatioState, transition: Transition) -> None:
        """Moves c(s_t) towards the target from up to `num_steps` states before."""
        seeds = np.arange(len(state.c))
        rho_tm1 = self.rho[transition.s_tm1, transition.a_tm1]
        state.window.append((transition.s_tm1, rho_tm1, transition.is_initial_t))
        if len(state.window) > self.num_steps:
            state.window.popleft()
        starts, rhos, initial = zip(*state.window, strict=True)
        target = n_step_cop_target(
            state.c[seeds, starts[0]], rhos, self.ratio_discount, is_initial=initial
        )
        here = (seeds, transition.s_t)
        state.c[here] += self.step_size(state.visits[here]) * (target - state.c[here])
        state.visits[here] += 1
        if self.normalize:
            refuse_episodes(transition)
            mean = (state.visits * state.c).sum(axis=1) / state.visits.sum(axis=1)
            state.c /= np.where(mean > 0, mean, 1.0)[:, None]


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
            self.ratio.init(num_seeds), np.zeros(shape), np.zeros(shape, dtype=int)
        )

    def step(self, state: TabularCorrectedTDState, transition: Transition) -> None:
        """One step of the value with the ratio as it stands, then one of the ratio."""
        seeds = np.arange(len(state.v))
        before = (seeds, transition.s_tm1)
        error = td_error(
            state.v[before],
            transition.r_t,
            transition.discount_t(self.discount),
            state.v[seeds, transition.s_t],
        )
        rho_tm1 = self.ratio.rho[transition.s_tm1, transition.a_tm1]
        c_tm1 = np.maximum(state.ratio.c[before], 0.0)
        step = self.step_size(state.visits[before])
        state.v[before] += step * corrected_td_error(error, rho_tm1, c_tm1)
        state.visits[before] += 1
        self.ratio.step(state.ratio, transition)
