"""Statistics of runs: interquartile means, probabilities of improvement, and learning curves with bootstrap bands.

The methods are those of Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice"
(2021), as in the package rliable, with which the tests compare them. Scores are a matrix runs × tasks; a vector is
one task. NaN marks a missing run, so that tasks may have different numbers of runs. With a few runs a bootstrap band is
too narrow: it is drawn for the eye, and `covshift.report.contrasts` has the tests and intervals that verdicts rest on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Takes scores … × runs × tasks and returns a number for each of the leading axes."""

RESAMPLES = 2000
"""Bootstrap resamples: the ends of an interval then move by a few hundredths of its width between seeds."""


class Estimate(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


class Band(NamedTuple):
    """A learning curve over runs: at each `x` the statistic, its interval, and the number of runs there."""

    x: Floats
    middle: Floats
    low: Floats
    high: Floats
    alive: NDArray[np.int64]


class Curve(NamedTuple):
    """The measurements of one run, and its task."""

    x: Sequence[float] | Floats
    y: Sequence[float] | Floats
    task: str = ""


def interquartile_mean(scores: Floats) -> Floats:
    """The mean of the middle half of all scores: of n, the ⌊n/4⌋ lowest and the ⌊n/4⌋ highest are left out.

    All runs of all tasks are one pool.

    Args:
        scores: … × runs × tasks, or a vector of runs.

    Returns:
        A number for each of the leading axes; NaN where there are no scores.

    Example:
        >>> float(interquartile_mean(np.array([100.0, 2.0, 4.0, -50.0])))
        3.0
    """
    matrix = _at_least_matrix(scores)
    size = matrix.shape[-2] * matrix.shape[-1]
    pool = np.sort(matrix.reshape(*matrix.shape[:-2], size), axis=-1)  # NaN comes last.
    count = np.isfinite(pool).sum(axis=-1, keepdims=True)
    cut = count // 4
    rank = np.arange(pool.shape[-1])
    middle = (rank >= cut) & (rank < count - cut)
    return _ratio(np.where(middle, pool, 0.0).sum(axis=-1), middle.sum(axis=-1))


def mean_score(scores: Floats) -> Floats:
    """The mean over tasks of the mean over runs.

    Args:
        scores: … × runs × tasks, or a vector of runs.

    Example:
        >>> float(mean_score(np.array([[1.0, 5.0], [3.0, np.nan]])))
        3.5
    """
    matrix = _at_least_matrix(scores)
    there = np.isfinite(matrix)
    tasks = _ratio(np.where(there, matrix, 0.0).sum(axis=-2), there.sum(axis=-2))
    known = np.isfinite(tasks)
    return _ratio(np.where(known, tasks, 0.0).sum(axis=-1), known.sum(axis=-1))


def probability_of_improvement(scores_x: Floats, scores_y: Floats) -> Floats:
    """The mean over tasks of P(X > Y) + ½ P(X = Y), for a random run X of one method and Y of the other.

    Args:
        scores_x: … × runs × tasks, or a vector of runs.
        scores_y: the same tasks; the number of runs may differ.

    Example:
        >>> float(probability_of_improvement(np.array([1.0, 3.0]), np.array([2.0, 3.0])))  # 0, 0, 1, ½
        0.375
    """
    x, y = _at_least_matrix(scores_x), _at_least_matrix(scores_y)
    if x.shape[-1] != y.shape[-1]:
        raise InputError(
            f"both methods must have the same tasks, but one has {x.shape[-1]} and one {y.shape[-1]}"
        )
    gap = x[..., :, None, :] - y[..., None, :, :]
    wins = np.where(np.isnan(gap), 0.0, (np.sign(gap) + 1) / 2).sum(axis=(-3, -2))
    tasks = _ratio(wins, np.isfinite(gap).sum(axis=(-3, -2)))
    return np.asarray(tasks.mean(axis=-1))


def curve_band(
    curves: Sequence[Curve],
    rng: np.random.Generator,
    *,
    statistic: Statistic = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Band:
    """A statistic of runs along their curves, with its pointwise stratified bootstrap percentile interval.

    Each resample draws, within each task, as many runs as the task has, with replacement; the interval is
    between the percentiles (1 ∓ confidence)/2 of the statistic over resamples. It covers other seeds on the same
    tasks, not other tasks. Of three to five runs it covers too little, and of one run it is a point.

    A run that diverged is missing from there on: its last value is not repeated, and it does not count as zero. The
    band then covers the remaining runs, `alive` of them. Where `alive` falls, a rising band may only mean that the
    worst run is gone. The same runs are drawn at every x, so that the band is as smooth as the curves.

    Args:
        curves: one per run; values that are not finite count as missing.
        rng: draws the resamples.
        statistic: `interquartile_mean` or `mean_score`.
        confidence: confidence of the interval at each x.
        resamples: number of bootstrap resamples.

    Returns:
        The band at every x at which some run was measured.

    Example:
        >>> runs = [Curve([0, 1, 2], [1, 2, 3]), Curve([0, 1], [3, 4])]
        >>> band = curve_band(runs, np.random.default_rng(0))
        >>> band.middle.tolist(), band.alive.tolist()
        ([2.0, 3.0, 3.0], [2, 2, 1])
    """
    tasks = list(dict.fromkeys(curve.task for curve in curves))
    points = [_finite_points(curve) for curve in curves]
    x = np.array(sorted({at for run in points for at in run}), dtype=np.float64)
    members = [[k for k, curve in enumerate(curves) if curve.task == task] for task in tasks]
    cube = np.full((len(x), max(map(len, members), default=0), len(tasks)), np.nan)
    for task, runs in enumerate(members):
        for row, k in enumerate(runs):
            cube[:, row, task] = [points[k].get(at, np.nan) for at in x.tolist()]
    uniforms = _uniforms(cube[0], resamples, rng) if len(x) else np.empty(0)
    ends = [
        percentile_interval(statistic(resample(matrix, uniforms)), confidence) for matrix in cube
    ]
    low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    alive = np.isfinite(cube).sum(axis=(1, 2))
    return Band(x, statistic(cube), low, high, alive)


def resample(scores: Floats, uniforms: Floats) -> Floats:
    """Draws runs within each task, with replacement.

    A uniform number u in [0, 1) draws run ⌊u n⌋ of the task's n; a missing run stays missing.

    Args:
        scores: runs × tasks.
        uniforms: resamples × runs × tasks.

    Returns:
        Resamples × runs × tasks.

    Example:
        >>> resample(np.array([[1.0], [np.nan], [2.0]]), np.array([[[0.0], [0.4], [0.6]]]))[0, :, 0]
        array([ 1.,  1., nan])
    """
    there = np.isfinite(scores)
    order = np.argsort(~there, axis=0, kind="stable")  # Missing runs come last.
    packed = np.take_along_axis(scores, order, axis=0)
    count = there.sum(axis=0)
    drawn = np.take_along_axis(packed[None], (uniforms * count).astype(np.int64), axis=1)
    return np.where(np.arange(len(scores))[:, None] < count, drawn, np.nan)


def percentile_interval(estimates: Floats, confidence: float) -> tuple[float, float]:
    """The percentiles (1 ∓ confidence)/2 of resampled estimates, interpolated linearly.

    Example:
        >>> low, high = percentile_interval(np.arange(101.0), 0.9)
        >>> round(low, 6), round(high, 6)
        (5.0, 95.0)
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, but it is {confidence}")
    low, high = np.quantile(estimates, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _uniforms(matrix: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, but it is {resamples}")
    return rng.random((resamples, *matrix.shape))


def _finite_points(curve: Curve) -> dict[float, float]:
    if len(curve.x) != len(curve.y):
        raise InputError(
            f"a curve must have a value for each x, but it has {len(curve.y)} for {len(curve.x)}"
        )
    points = zip(map(float, curve.x), map(float, curve.y), strict=True)
    return {x: y for x, y in points if np.isfinite(y)}


def _at_least_matrix(scores: Floats) -> Floats:
    return scores[:, None] if scores.ndim == 1 else scores


def _ratio(total: Floats, count: NDArray[Any]) -> Floats:
    with np.errstate(invalid="ignore"):  # 0/0 is NaN.
        return np.asarray(total / count)
