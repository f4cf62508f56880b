"""Ratios on a table: the exact ratio of the model that the data give by counting, and COP-TD."""

from __future__ import annotations

import numpy as np

from covshift.errors import InputError
from covshift.estimation.arrivals import arrivals
from covshift.estimation.experience import Experience
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.problem import RatioProblem, TableRatio
from covshift.learners.blocks import count_visits, learn_ratio
from covshift.learners.schedules import robbins_monro
from covshift.validation import check_count


def fit_empirical(problem: RatioProblem) -> TableRatio:
    """The exact ratio of the empirical model, whose μ is the share of each logged action; tables only."""
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
    """Tabular COP-TD (γ̂ = 1) or discounted COP-TD, transition by transition; eq. (4), (6), n-step targets as in B4.

    At γ̂ = 1 without the target 1 of initial states every step is homogeneous in c, so dividing by the mean once, at
    the end, gives normalized COP-TD.

    Args:
        problem: what to estimate.
        num_steps: n of the n-step target.
        passes: how often to go through the data.
        step_size: the first step size of a state.
        halfway: updates of a state after which its step size has halved; by default 2/(1 - γ̂), but at least 10 and
            at most 1000, and 100 at γ̂ = 1.
        seed: for drawing trajectories, where they are weighted.
    """
    experience = _tabular("td", problem)
    check_count("num_steps", num_steps)
    check_count("passes", passes)
    discount = problem.ratio_discount
    horizon = 100.0 if discount == 1.0 else min(max(2.0 / (1.0 - discount), 10.0), 1000.0)
    steps = robbins_monro(step_size, horizon if halfway is None else halfway)
    size = experience.features.size
    c, visits = np.ones((1, size)), np.zeros((1, size), dtype=np.int64)
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        moves = arrivals(problem, rng)
        window = np.maximum(moves.record, np.arange(len(moves.record)) - num_steps + 1)
        sizes = steps(count_visits(visits, moves.s_t))
        learn_ratio(c, None, *moves[:4], discount, sizes, window=window)
    if problem.has_mean_one and discount == 1.0:
        c /= visits[0] @ c[0] / visits.sum()
    return TableRatio(c[0])


def _tabular(name: str, problem: RatioProblem) -> Experience:
    if not problem.experience.is_tabular:
        raise InputError(
            f"method '{name}' needs states that are whole numbers or one-hot vectors; use 'least-squares'"
        )
    return problem.experience
