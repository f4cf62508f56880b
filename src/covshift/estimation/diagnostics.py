"""What tells a ratio that can be believed from one that cannot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
import scipy.sparse as sp

from covshift.estimation.experience import Experience
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.moments import solve
from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.theory.bounds import mean_ratio_bounds
from covshift.validation import Vector

Flag: TypeAlias = Literal["ok", "collapsed", "diverged", "impossible"]

COLLAPSED, DIVERGED = 0.2, 5.0
"""Means of ĉ below and above which a ratio whose mean should be 1 is given up."""

TOLERANCE = 0.1
"""Share by which a mean of ĉ that counts visits may be outside of what policies have: samples are noisy."""

MOST_FEATURES = 4000
"""Features beyond which no Gram matrix is made for the residual."""

LARGEST = 1e6
"""A ratio beyond it has diverged, whatever its mean."""


@final
@dataclass(frozen=True)
class Diagnostics:
    """Standard diagnostics of a ratio.

    Attributes:
        transitions: in the data.
        trajectories: in the data.
        mean_ratio: E_μ[ĉ]; 1 but for the semantics `visits`.
        max_ratio: the largest ĉ in the data.
        ess_share: (Σ ĉ)²/(N Σ ĉ²), the share of the sample that is left after weighting by ĉ.
        pair_ess_share: the same for the weights ĉρ of values.
        unsupported_mass: share of data under which π takes actions that were never logged there; on
            features 1 - E_μ[ρ], what the logged actions leave of π.
        residual: ‖Π(Y_γ̂ĉ - ĉ)‖ on the data it was fitted to; 0 for the exact methods.
        held_out_residual: the same on trajectories it was not fitted to; NaN with fewer than two.
        flag: `collapsed` or `diverged` where ĉ is no ratio any more; `impossible` where visits are counted and no policy
            has such an E_μ[c] (B6).
    """

    transitions: int
    trajectories: int
    mean_ratio: float
    max_ratio: float
    ess_share: float
    pair_ess_share: float
    unsupported_mass: float
    residual: float
    held_out_residual: float
    flag: Flag

    def record(self) -> dict[str, Any]:
        """As plain values; NaN as None."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def diagnose(
    problem: RatioProblem, function: RatioFunction, held_out_residual: float
) -> Diagnostics:
    """All of it in one pass more over the data."""
    experience = problem.experience
    sums = np.zeros(7)
    largest = 0.0
    for sample in experience.samples():
        c, weight = function.at(sample.x_tm1), sample.weight
        both = c * sample.rho_tm1
        parts = (1.0, c, c**2, both, both**2, sample.rho_tm1, sample.is_initial_tm1)
        sums += [float((weight * part).sum()) for part in parts]
        largest = max(largest, float(np.abs(c).max()))
    count, total, squares, pair_total, pair_squares, rho_total, starts = sums.tolist()
    mean = total / count
    return Diagnostics(
        len(experience.logs),
        experience.logs.num_trajectories,
        mean,
        largest,
        _share(total, squares, count),
        _share(pair_total, pair_squares, count),
        unsupported_mass(experience, rho_total / count),
        projected_residual(problem, function),
        held_out_residual,
        _flag(problem, mean, largest, starts / count),
    )


def projected_residual(problem: RatioProblem, function: RatioFunction) -> float:
    """‖Π(Y_γ̂ĉ - ĉ)‖ in the norm of the data: how far the equation fails, as far as features can tell.

    NaN beyond `MOST_FEATURES`, such as for raw observations.
    """
    experience, size = problem.experience, problem.experience.features.size
    if not experience.is_tabular and size > MOST_FEATURES:
        return float("nan")
    discount = problem.ratio_discount
    error, total, initial = np.zeros(size), np.zeros(size), np.zeros(size)
    gram: Any = 0.0
    count = starts = ended = 0.0
    for sample in experience.samples():
        c, weight = function.at(sample.x_tm1), sample.weight
        flow = weight * problem.discount * sample.rho_tm1 * c
        error -= _total(sample.x_tm1, weight * c, size)
        error += discount * _total(sample.x_t, flow * ~sample.terminated_t, size)
        total += _total(sample.x_tm1, weight, size)
        initial += _total(sample.x_tm1, weight * sample.is_initial_tm1, size)
        count, ended = count + weight.sum(), ended + float(flow @ sample.terminated_t)
        starts += float(weight @ sample.is_initial_tm1)
        gram = gram + _gram(sample.x_tm1, weight, size)
    error += (1.0 - discount) * total
    if problem.semantics == "visits":
        error += discount * initial
    elif problem.semantics == "restart":
        error += discount * ended * initial / starts
    if experience.is_tabular:
        # Arrivals at states in which nothing was done have no weight in the norm.
        seen = total > 0
        return float(np.sqrt((error[seen] ** 2 / total[seen]).sum() / count))
    return float(np.sqrt(max(float(error @ solve(gram, error)), 0.0) / count))


def unsupported_mass(experience: Experience, mean_rho: float) -> float:
    """Share of π that the logged actions do not cover."""
    if experience.is_tabular:
        return EmpiricalModel.of(experience).unsupported_mass
    return max(0.0, 1.0 - mean_rho)


def _flag(problem: RatioProblem, mean: float, largest: float, initial_share: float) -> Flag:
    if not np.isfinite(mean) or largest > LARGEST:
        return "diverged"
    if problem.has_mean_one:
        return "diverged" if mean > DIVERGED else "collapsed" if mean < COLLAPSED else "ok"
    low, high = mean_ratio_bounds(problem.ratio_discount, initial_share, problem.discount)
    return "ok" if (1.0 - TOLERANCE) * low <= mean <= (1.0 + TOLERANCE) * high else "impossible"


def _share(total: float, squares: float, count: float) -> float:
    return float(total**2 / (count * squares)) if squares > 0 else 0.0


def _total(x: Any, weight: Vector, size: int) -> Vector:
    return np.asarray(x.T @ weight if x.ndim == 2 else np.bincount(x, weight, minlength=size))


def _gram(x: Any, weight: Vector, size: int) -> Any:
    return x.T @ (weight[:, None] * x) if x.ndim == 2 else sp.csr_array((size, size))
