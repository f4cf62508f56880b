"""Diagnostics that tell whether an estimated ratio can be trusted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, final, get_type_hints

import numpy as np
import scipy.sparse as sp
from typing_extensions import TypedDict

from covshift.estimation.experience import Experience
from covshift.estimation.misspecification import UNCHECKED, Violation
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.moments import solve
from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.theory.bounds import mean_ratio_bounds, mean_ratio_is_possible
from covshift.validation import Vector

Flag: TypeAlias = Literal[
    "ok", "collapsed", "diverged", "impossible", "low support", "misspecified", "unstable"
]

COLLAPSED, DIVERGED = 0.2, 5.0
"""Means below and above which a ratio whose mean should be 1 is flagged."""

MOST_FEATURES = 4000
"""The largest number of features for which the residual's Gram matrix is computed."""

LARGEST = 1e6
"""A larger ratio has diverged, whatever the mean."""

UNSUPPORTED = 0.25
"""Unsupported mass above which the data say too little about π."""

RARE, RARE_SHARE = 5.0, 0.1
"""In a table, how often a pair of state and action must be logged, and the share of what π does that may be logged less often."""

THIN, FEWEST_EFFECTIVE = 0.1, 20.0
"""Effective share and number of transitions; if both are smaller, the data say too little about π."""

MISSPECIFIED = 0.03
"""A ratio is flagged if its equation is surely wrong by more than this part of its norm; errors add up over steps."""


@final
@dataclass(frozen=True)
class Diagnostics:
    """Standard diagnostics of a ratio.

    Attributes:
        transitions: number of transitions in the data.
        trajectories: number of trajectories in the data.
        mean_ratio: E_μ[ĉ], which should be 1 except in the semantics `visits`.
        max_ratio: the largest ĉ in the data.
        ess_share: (Σ ĉ)²/(N Σ ĉ²), the effective share of the N samples when they are weighted by ĉ.
        pair_ess_share: the same for the weights ĉρ that values use.
        unsupported_mass: share of the data in which π takes actions that were never logged there; on features
            1 - E_μ[ρ], the part of π that the logged actions do not cover.
        rare_mass: in a table, the share of what π does, weighted by ĉ, in pairs of state and action that were logged fewer than
            5 times: a model that is counted from so few says too little of its own error. NaN on features.
        residual: ‖Π(Y_γ̂ĉ - ĉ)‖ on the data it was fitted to; 0 for exact methods.
        held_out_residual: the same for a fit to other trajectories; NaN with fewer than two.
        violation: a lower bound on ‖Y_γ̂ĉ - ĉ‖, which the features need not see, by a flexible model on held-out
            trajectories; see `misspecification.find_violation`. NaN if it was not checked, as on tables.
        violation_error: its standard error.
        imbalance: the same for an entry of the observation or its square, of which the worst one is taken; see
            `misspecification.find_imbalance`.
        imbalance_error: its standard error.
        flag: `collapsed` or `diverged` if the mean is far from 1; `impossible` if visits are counted and no
            policy can have this mean (B6, the bounds on E_μ[c]); `low support` if the data hold too little of what
            π does; `misspecified` if the violation or the imbalance surely exceeds 3 % of ‖ĉ‖. A value can also be
            `unstable`; see `ValueDiagnostics`.
    """

    transitions: int
    trajectories: int
    mean_ratio: float
    max_ratio: float
    ess_share: float
    pair_ess_share: float
    unsupported_mass: float
    rare_mass: float
    residual: float
    held_out_residual: float
    violation: float
    violation_error: float
    imbalance: float
    imbalance_error: float
    flag: Flag

    def record(self) -> dict[str, Any]:
        """The fields as plain values for JSON; NaN becomes None."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def of_record(cls, record: DiagnosticsRecord) -> Diagnostics:
        """The diagnostics that `record` describes."""
        known: dict[str, Any] = {
            name: math.nan if value is None else value for name, value in record.items()
        }
        return cls(**dict.fromkeys(_ADDED, math.nan) | known)


_ADDED = ("rare_mass", "violation", "violation_error", "imbalance", "imbalance_error")
"""Fields that estimates of older versions lack."""

if TYPE_CHECKING:
    DiagnosticsRecord: TypeAlias = dict[str, Any]
else:
    DiagnosticsRecord = TypedDict(
        "DiagnosticsRecord",
        {
            name: NotRequired[kind | None] if name in _ADDED else kind | None
            for name, kind in get_type_hints(Diagnostics).items()
        },
    )
    """What `Diagnostics.record` gives, as a schema for `covshift.schema`."""


def diagnose(
    problem: RatioProblem,
    function: RatioFunction,
    held_out_residual: float,
    violation: Violation = UNCHECKED,
    imbalance: Violation = UNCHECKED,
) -> Diagnostics:
    """Computes all diagnostics of a fitted ratio; the last three arguments come from a fit to a part of the data."""
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
    pair_share = _share(pair_total, pair_squares, count)
    unsupported = unsupported_mass(experience, rho_total / count)
    flag = _flag(problem, mean, largest, starts / count)
    is_thin = pair_share < THIN and pair_share * count < FEWEST_EFFECTIVE
    rare = rare_mass(experience, function)
    if flag == "ok" and (unsupported > UNSUPPORTED or rare > RARE_SHARE or is_thin):
        flag = "low support"
    if flag == "ok" and (_is_sure(violation) or _is_sure(imbalance)):
        flag = "misspecified"
    return Diagnostics(
        experience.logs.num_transitions,
        len(experience.logs),
        mean,
        largest,
        _share(total, squares, count),
        pair_share,
        unsupported,
        rare,
        projected_residual(problem, function),
        held_out_residual,
        violation.size,
        violation.standard_error,
        imbalance.size,
        imbalance.standard_error,
        flag,
    )


def projected_residual(problem: RatioProblem, function: RatioFunction) -> float:
    """‖Π(Y_γ̂ĉ - ĉ)‖ in the norm of the data: by how much the features see the ratio's equation violated.

    NaN for more than `MOST_FEATURES` features, such as raw observations.
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
    """The share of π that the logged actions do not cover."""
    if experience.is_tabular:
        return EmpiricalModel.of(experience).unsupported_mass
    return max(0.0, 1.0 - mean_rho)


def rare_mass(experience: Experience, function: RatioFunction) -> float:
    """The share of what π does in pairs of a table that were logged fewer than `RARE` times; NaN on features."""
    if not experience.is_tabular:
        return math.nan
    model = EmpiricalModel.of(experience)
    weight = (model.d_mu * function.at(model.states))[:, None] * model.pi
    return float(weight[model.pairs < RARE].sum() / max(float(weight.sum()), 1e-300))


def _flag(problem: RatioProblem, mean: float, largest: float, initial_share: float) -> Flag:
    if not np.isfinite(mean) or largest > LARGEST:
        return "diverged"
    if problem.has_mean_one:
        return "diverged" if mean > DIVERGED else "collapsed" if mean < COLLAPSED else "ok"
    bounds = mean_ratio_bounds(problem.ratio_discount, initial_share, problem.discount)
    return "ok" if mean_ratio_is_possible(mean, bounds) else "impossible"


def _is_sure(violation: Violation) -> bool:
    return bool(violation.sure > MISSPECIFIED * violation.norm)


def _share(total: float, squares: float, count: float) -> float:
    return float(total**2 / (count * squares)) if squares > 0 else 0.0


def _total(x: Any, weight: Vector, size: int) -> Vector:
    return np.asarray(x.T @ weight if x.ndim == 2 else np.bincount(x, weight, minlength=size))


def _gram(x: Any, weight: Vector, size: int) -> Any:
    return x.T @ (weight[:, None] * x) if x.ndim == 2 else sp.csr_array((size, size))
