"""The method `matching`: a positive ratio of the right mean, by its matching loss (B7)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from covshift.errors import InputError
from covshift.estimation.moments import RatioMoments, outer
from covshift.estimation.problem import MatchedRatioFunction, RatioProblem, TableRatio
from covshift.rules import LINKS, floored_ratio
from covshift.validation import Dense, Vector, check_count

LinkName: TypeAlias = Literal["exponential", "safe"]

UNBOUNDED = (
    "nothing bounds the mean of a fit that counts visits at ratio_discount = 1: use a ratio_discount below 1, or "
    "semantics='restart'"
)
"""Why visits are not counted at γ̂ = 1 unless they are discounted."""

_LEAST_RIDGE = 1e-6
"""The smallest ridge that is tried in place of none."""

_LONGEST = 1e6
"""The longest step; it differs from Newton's by one part in a million."""


def fit_matching(
    problem: RatioProblem,
    *,
    link: LinkName = "exponential",
    ridge: float = 0.0,
    iterations: int = 60,
    tolerance: float = 1e-9,
) -> TableRatio | MatchedRatioFunction:
    """ĉ = 1 - γ̂ + γ̂ g(φᵀw), where g(φᵀw) is fitted by the matching loss to what arrives in each state.

    The weights solve Σ φ(s) g(φ(s)ᵀw) = Σ kγρĉ(s) φ(s') + inflow, summed over transitions. The inflow of `visits` is
    Σ φ(s₀); that of `restart` is what ended, Σ kρĉ(s), times the mean of φ(s₀). The factor k gives kρĉ the mean of ĉ over
    the data, which is what ρĉ has in expectation. So ĉ is at least 1 - γ̂, its mean over the data is exactly 1, or in
    `visits` within the bounds of B6, and chance cannot make it diverge.

    The solution is where fits to averaged targets come to rest. It is found by implicit steps along that iteration,
    which grow until they are Newton's; each is one pass over the data. On a table all links have the same answer,
    and one pass is enough.

    Args:
        problem: what to estimate; γ̂ = 1 needs `continuing`, `restart` or a discount below 1.
        link: g; the exponential has the guarantees, the safe link grows like a line where the score is positive.
        ridge: weight of the penalty ½ Var(φᵀw), which keeps a mean of 1; in `visits` it moves the mean within its bounds.
            Where fits do not come to rest, as when features are many for the data, it is raised until they do, with a
            warning.
        iterations: most passes over the data for each ridge.
        tolerance: norm of the equation's error at which the steps end.

    Raises:
        InputError: the features hold no bias, visits are counted at γ̂ = 1, or there is no solution.

    Reference: Kelley & Keyes (1998) for the steps, known as pseudo-transient continuation.
    """
    if link not in LINKS:
        raise InputError(f"link must be exponential or safe, but it is {link}")
    if not ridge >= 0:
        raise InputError(f"ridge must not be negative, but it is {ridge}")
    check_count("iterations", iterations)
    if problem.semantics == "visits" and problem.ratio_discount * problem.discount == 1.0:
        raise InputError(UNBOUNDED)
    moments = RatioMoments.of(problem.experience)
    family: _Family
    if problem.experience.is_tabular:
        family, ridge = _Table.of(problem, moments), 0.0
    else:
        family = _Features.of(problem, moments, link)
    equation = _Equation(problem, moments, family, ridge)
    found = _rest(equation, family.start, iterations, tolerance)
    if found is None and not problem.experience.is_tabular:
        found = _rest_with_ridge(equation, iterations, tolerance)
    if found is None:
        raise InputError(
            f"no ratio solves the equation of the data at ratio_discount = {problem.ratio_discount:g}: use a smaller "
            "ratio_discount, or fewer features"
        )
    return family.function(found)


class _Flow(NamedTuple):
    """Where a ratio is and where it leads, in means over the transitions, with derivatives by the coordinates u.

    Attributes:
        here: mean of x(s) φ(s), where ĉ = 1 - γ̂ + γ̂x.
        here_slope: its derivative.
        moved: mean of ρĉ(s) φ(s') over transitions that end no episode.
        moved_slope: its derivative.
        ended: mean of ρĉ(s) over transitions that end an episode.
        ended_slope: its derivative.
    """

    here: Vector
    here_slope: Any
    moved: Vector
    moved_slope: Any
    ended: float
    ended_slope: Vector


class _Family(Protocol):
    """Ratios with coordinates u; a sum over features Φ becomes expandᵀΦ, in which features are orthonormal."""

    @property
    def expand(self) -> Any:
        """Features × coordinates."""

    @property
    def start(self) -> Vector:
        """The u of ĉ = 1."""

    def flow(self, u: Vector) -> _Flow:
        """Where the ratio u is and where it leads."""

    def function(self, u: Vector) -> TableRatio | MatchedRatioFunction:
        """The ratio u as a function of states."""


@final
@dataclass(frozen=True, eq=False)
class _Table:
    """Any x in the states with data: what arrives over the number of visits, whatever the link."""

    moments: RatioMoments
    ratio_discount: float
    expand: Any

    @classmethod
    def of(cls, problem: RatioProblem, moments: RatioMoments) -> _Table:
        seen = np.flatnonzero(moments.total > 0)
        scale = 1.0 / np.sqrt(moments.total[seen] / moments.count)
        index = (seen, np.arange(len(seen)))
        shape = (len(moments.total), len(seen))
        return cls(moments, problem.ratio_discount, sp.csc_array((scale, index), shape))

    @property
    def start(self) -> Vector:
        return np.asarray(1.0 / self.expand.data)

    def flow(self, u: Vector) -> _Flow:
        gamma, sums, expand = self.ratio_discount, self.moments, self.expand
        arrivals = np.asarray(expand @ u)
        if arrivals.min() < -1e-6:  # Other solutions than the positive one lie beyond.
            raise InputError(f"x must not be negative, but it is {arrivals.min():.3g}")
        c = floored_ratio(arrivals, gamma)
        cross, ending = expand.T @ sums.cross / sums.count, sums.ending / sums.count
        return _Flow(
            u,
            sp.eye_array(len(u)),
            np.asarray(cross @ c),
            gamma * (cross @ expand),
            float(ending @ c),
            gamma * (expand.T @ ending),
        )

    def function(self, u: Vector) -> TableRatio:
        c = np.ones(len(self.moments.total))
        # Where nothing arrives rounding may leave x just below 0.
        arrivals = np.maximum(self.expand.data * u, 0.0)
        c[self.expand.indices] = floored_ratio(arrivals, self.ratio_discount)
        return TableRatio(c)


@final
@dataclass(frozen=True, eq=False)
class _Features:
    """x = g(φᵀw) with the weights w = expand · u."""

    problem: RatioProblem
    link: LinkName
    expand: Dense

    @classmethod
    def of(cls, problem: RatioProblem, moments: RatioMoments, link: LinkName) -> _Features:
        gram = np.asarray(moments.gram) / moments.count
        size = np.sqrt(gram.diagonal())
        scale = np.divide(1.0, size, where=size > 0, out=np.zeros_like(size))
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        kept = values > 1e-12 * values[-1]
        expand = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
        bias = expand.T @ moments.total / moments.count
        gap = float(np.sqrt(max(1.0 - bias @ bias, 0.0)))
        if gap > 1e-4:
            raise InputError(
                f"the features have no bias, so that fits do not keep the mean ratio: the combination nearest to 1 misses "
                f"it by {gap:.3g}; add a feature that is 1 in every state"
            )
        return cls(problem, link, expand)

    @property
    def start(self) -> Vector:
        return np.zeros(self.expand.shape[1])

    def flow(self, u: Vector) -> _Flow:
        gamma, link, w = self.problem.ratio_discount, LINKS[self.link], self.expand @ u
        sums: list[Any] = [0.0] * 7
        for sample in self.problem.experience.samples():
            x_tm1, z, stays = sample.x_tm1, sample.x_tm1 @ w, ~sample.terminated_t
            arrivals, slope = link.ratio(z), sample.weight * link.slope(z)
            rho, rho_slope = sample.weight * sample.rho_tm1, sample.rho_tm1 * gamma * slope
            led = rho * floored_ratio(arrivals, gamma)
            parts = (
                sample.weight.sum(),
                x_tm1.T @ (sample.weight * arrivals),
                outer(x_tm1, x_tm1, slope),
                sample.x_t.T @ (led * stays),
                outer(sample.x_t, x_tm1, rho_slope * stays),
                led @ sample.terminated_t,
                x_tm1.T @ (rho_slope * sample.terminated_t),
            )
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
        count, here, here_slope, moved, moved_slope, ended, ended_slope = sums
        expand = self.expand / count
        return _Flow(
            expand.T @ here,
            expand.T @ here_slope @ self.expand,
            expand.T @ moved,
            expand.T @ moved_slope @ self.expand,
            float(ended / count),
            expand.T @ ended_slope,
        )

    def function(self, u: Vector) -> MatchedRatioFunction:
        return MatchedRatioFunction(self.expand @ u, self.problem.ratio_discount, self.link)


@final
@dataclass(frozen=True, eq=False)
class _Equation:
    """x - what arrives = 0, as the features see it, in coordinates u.

    Args:
        problem: what to estimate.
        moments: sums over the data.
        family: the ratios among which the solution is.
        ridge: weight of the penalty.
    """

    problem: RatioProblem
    moments: RatioMoments
    family: _Family
    ridge: float

    def at(self, u: Vector) -> _Local:
        """The equation near u."""
        flow, problem = self.family.flow(u), self.problem
        bias, initial = (
            self.family.expand.T @ total / self.moments.count
            for total in (self.moments.total, self.moments.initial)
        )
        all_moved = float(bias @ flow.moved) + flow.ended
        all_moved_slope = flow.moved_slope.T @ bias + flow.ended_slope
        if not all_moved > 0:
            raise InputError(
                "the target policy takes no logged action: the data say nothing about it"
            )
        if problem.has_mean_one:
            # Scaled so that what arrives has mean 1, as ĉ then has too.
            starts = self.moments.count / self.moments.starts if flow.ended else 0.0
            arrives = (flow.moved + flow.ended * starts * initial) / all_moved
            moved_slope = flow.moved_slope / all_moved
            rows = [starts * initial / all_moved, -arrives / all_moved]
            columns = [flow.ended_slope, all_moved_slope]
        else:
            mean = float(floored_ratio(bias @ flow.here, problem.ratio_discount))
            mean_slope = problem.ratio_discount * (flow.here_slope.T @ bias)
            factor = problem.discount * mean / all_moved
            arrives = factor * flow.moved + initial
            moved_slope = factor * flow.moved_slope
            rows = [factor * flow.moved]
            columns = [mean_slope / mean - all_moved_slope / all_moved]
        penalty = self.ridge * (u - bias * (bias @ u))
        here_slope = flow.here_slope
        if self.ridge:
            here_slope = here_slope + self.ridge * (np.eye(len(u)) - np.outer(bias, bias))
        return _Local(
            flow.here + penalty - arrives,
            here_slope,
            moved_slope,
            np.stack(rows, axis=1),
            np.stack(columns),
        )


class _Local(NamedTuple):
    """The equation near a u.

    Attributes:
        error: x - what arrives.
        here_slope: derivative of x.
        moved_slope: derivative of what arrives, less rows · columns.
        rows: coordinates × one or two.
        columns: one or two × coordinates.
    """

    error: Vector
    here_slope: Any
    moved_slope: Any
    rows: Dense
    columns: Dense

    @property
    def norm(self) -> float:
        """Norm of the error over the data."""
        return float(np.linalg.norm(self.error))

    def step(self, length: float) -> Vector:
        """An implicit step of this length along fits to averaged targets; Newton's if it is infinite."""
        system = (1.0 + 1.0 / length) * self.here_slope - self.moved_slope
        found = _solve(system, np.column_stack([-self.error, self.rows]))
        direct, back = found[:, 0], found[:, 1:]
        small = np.eye(len(self.columns)) - self.columns @ back
        return np.asarray(direct + back @ np.linalg.solve(small, self.columns @ direct))


def _rest_with_ridge(equation: _Equation, iterations: int, tolerance: float) -> Vector | None:
    """The solution for the smallest ridge that has one, followed from the ridge 1 down by halves."""
    found, least, ridge = None, 0.0, 1.0
    start = equation.family.start
    while ridge > max(equation.ridge, _LEAST_RIDGE):
        next_found = _rest(replace(equation, ridge=ridge), start, iterations, tolerance)
        if next_found is None:
            break
        found = start = next_found
        least, ridge = ridge, 0.5 * ridge
    if found is not None:
        warnings.warn(
            f"fits do not come to rest with the ridge {equation.ridge:g}, so that it was raised to {least:.2g}: the "
            "features are many for the data, or records are cut off where few others lead",
            stacklevel=4,
        )
    return found


def _rest(equation: _Equation, start: Vector, iterations: int, tolerance: float) -> Vector | None:
    """The u at which the error is 0, from a start; None if the steps lead nowhere."""
    u, length = start, 1.0
    here = equation.at(u)
    least = here.norm
    for _ in range(iterations):
        if here.norm <= tolerance:
            return u
        try:
            there = u + here.step(length)
            moved = equation.at(there)
        except (
            InputError
        ):  # The step is too long for the exponential, leads below 0, or has no solution.
            length /= 8.0
            continue
        if not moved.norm <= 2.0 * here.norm:
            length /= 8.0
            continue
        if moved.norm < here.norm:
            length = min(4.0 * length, _LONGEST)
        u, here = there, moved
        least = min(least, here.norm)
        if here.norm > 8.0 * least:  # The fits leave where they nearly came to rest.
            return None
    return None


def _solve(system: Any, right: Dense) -> Dense:
    try:
        if isinstance(system, np.ndarray):
            return np.asarray(np.linalg.solve(system, right))
        return np.asarray(splu(sp.csc_array(system)).solve(right))
    except (np.linalg.LinAlgError, RuntimeError) as error:
        raise InputError("the equation of the ratio is singular") from error
