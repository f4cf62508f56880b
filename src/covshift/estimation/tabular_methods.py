"""Ratios on a table: the exact one of the counted model, and COP-TD."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from covshift.errors import InputError
from covshift.estimation.arrivals import arrivals
from covshift.estimation.experience import Experience
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.problem import RatioProblem, TableRatio
from covshift.learners.schedules import robbins_monro
from covshift.rules import discounted_cop_target
from covshift.validation import check_count

_target: Callable[[float, float, float], float] = cast(Any, discounted_cop_target)
"""The rule on plain numbers, which a loop over transitions does fastest."""


def fit_empirical(problem: RatioProblem) -> TableRatio:
    """The exact ratio of the empirical model: tables only, no μ needed but through counts."""
    experience = _tabular("empirical", problem)
    model = EmpiricalModel.of(experience)
    c = model.ratio(problem.semantics, problem.ratio_discount, problem.discount)
    return TableRatio(model.scatter(c, experience.features.size, 1.0))


def fit_td(
    problem: RatioProblem,
    *,
    num_steps: int = 1,
    passes: int = 1,
    step_size: float = 1.0,
    halfway: float | None = None,
    seed: int = 0,
) -> TableRatio:
    """Tabular COP-TD (γ̂ = 1) or discounted COP-TD, transition by transition; eq. (4), (6), B4.

    At γ̂ = 1 without the target 1 of initial states every step is homogeneous in c, so one division by the
    mean at the end is normalized COP-TD.

    Args:
        problem: what to estimate.
        num_steps: n of the n-step target.
        passes: how often to go through the data.
        step_size: the first step size of a state.
        halfway: updates of a state after which the step has halved; by default 2/(1 - γ̂) between 10 and
            1000, and 100 at γ̂ = 1.
        seed: of the draw of trajectories where they are weighted.
    """
    experience = _tabular("td", problem)
    check_count("num_steps", num_steps)
    check_count("passes", passes)
    discount = problem.ratio_discount
    horizon = 100.0 if discount == 1.0 else min(max(2.0 / (1.0 - discount), 10.0), 1000.0)
    steps = robbins_monro(step_size, horizon if halfway is None else halfway)
    c, visits = [1.0] * experience.features.size, [0] * experience.features.size
    sizes = [float(steps(0))]
    window: deque[tuple[int, float, bool]] = deque(maxlen=num_steps)
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        for s_tm1, rho_tm1, s_t, is_initial in arrivals(problem, rng):
            if s_t < 0:
                window.clear()
                continue
            window.append((s_tm1, rho_tm1, is_initial))
            target = c[window[0][0]]
            for _, rho, starts in window:
                target = 1.0 if starts else _target(target, rho, discount)
            count = visits[s_t]
            if count == len(sizes):
                sizes.append(float(steps(count)))
            c[s_t] += sizes[count] * (target - c[s_t])
            visits[s_t] += 1
    table, seen = np.array(c), np.array(visits)
    if problem.has_mean_one and discount == 1.0:
        table = table / (seen @ table / seen.sum())
    return TableRatio(table)


def _tabular(name: str, problem: RatioProblem) -> Experience:
    if not problem.experience.is_tabular:
        raise InputError(
            f"method '{name}' needs states that are whole numbers or one-hot vectors; use 'least-squares'"
        )
    return problem.experience
