"""Comparisons of a few runs that are right for few runs: exact tests, exact intervals, and Student intervals.

A percentile bootstrap over three to five runs is too narrow. Here a comparison of two methods is an exact permutation
test: if the methods did not differ, each assignment of the runs to the two methods would be equally likely, within each
task. With one task this is the test of Mann and Whitney (1947). It needs no assumption about the distribution of scores.
Runs of the two methods that share a dataset are correlated, which makes the test err less often, not more. Runs of one
method that share a dataset count as independent: if a method has luck of its own with a dataset, the test errs more often.

Scores are a matrix runs × tasks, or a vector for one task. NaN marks a missing run; a score may be infinite.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.report.statistics import Estimate, interquartile_mean

Floats = NDArray[np.float64]


class Contrast(NamedTuple):
    """How one method compares with another.

    Attributes:
        value: the mean over tasks of P(X > Y) + ½ P(X = Y), for a random run X of one and Y of the other.
        better: probability of a value at least as large if the methods did not differ.
        worse: probability of a value at most as large.
    """

    value: float
    better: float
    worse: float

    @property
    def p(self) -> float:
        """The two-sided p-value."""
        return min(1.0, 2.0 * min(self.better, self.worse))


def compare(scores_x: Any, scores_y: Any) -> Contrast:
    """The probability of improvement, with both one-sided p-values of its exact permutation test.

    Args:
        scores_x: runs × tasks of one method.
        scores_y: runs × tasks of the other; the number of runs may differ.

    Returns:
        The contrast; where a task has no run of one method, nothing is known: NaN with p-values of 1.

    Example:
        >>> found = compare([3.0, 4.0, 5.0], [0.0, 1.0, 2.0])  # 1 of 20 assignments is as good.
        >>> found.value, round(found.better, 6), found.worse
        (1.0, 0.05, 1.0)
    """
    pairs = [
        (_present(x), _present(y))
        for x, y in zip(_matrix(scores_x).T, _matrix(scores_y).T, strict=True)
    ]
    if not all(len(x) and len(y) for x, y in pairs):
        return Contrast(math.nan, 1.0, 1.0)
    # Twice the number of won pairs, over a common denominator: tasks with fewer runs weigh as much as others.
    scale = math.lcm(*(len(x) * len(y) for x, y in pairs))
    law, won = np.ones(1), 0
    for x, y in pairs:
        weight = scale // (len(x) * len(y))
        pool = np.concatenate([x, y])
        ranks = _twice_won(pool, pool).sum(axis=1)
        won += weight * int(_twice_won(x, y).sum())
        law = np.convolve(law, _stretch(_null_law(tuple(sorted(ranks.tolist())), len(x)), weight))
    value = won / (2 * scale * len(pairs))
    return Contrast(value, min(1.0, float(law[won:].sum())), min(1.0, float(law[: won + 1].sum())))


def difference_estimate(scores_x: Any, scores_y: Any, confidence: float = 0.95) -> Estimate:
    """By how much one method scores more: the median of all pairwise differences, with its exact interval.

    The interval of Hodges and Lehmann (1963) contains every shift that the test of Mann and Whitney does not reject.
    It is exact if the methods' scores differ by a shift; ties widen it. With too few runs it is infinite.

    Args:
        scores_x: a vector of runs.
        scores_y: a vector of runs.
        confidence: share of experiments whose interval should contain the true shift.

    Example:
        >>> difference_estimate([5.0, 6.0, 7.0, 8.0], [0.0, 1.0, 2.0, 3.0])
        Estimate(value=5.0, low=2.0, high=8.0)
    """
    x, y = _present(np.asarray(scores_x, np.float64)), _present(np.asarray(scores_y, np.float64))
    if not len(x) or not len(y):
        return Estimate(math.nan, -math.inf, math.inf)
    gaps = np.sort((x[:, None] - y).ravel())
    ranks = tuple(range(1, 2 * (len(x) + len(y)), 2))  # Without ties.
    tail = np.cumsum(_null_law(ranks, len(x))[::2])  # Pairs are won whole.
    left_out = int((tail <= (1.0 - confidence) / 2 + _ROUNDING).sum())
    if left_out == 0:
        return Estimate(float(np.median(gaps)), -math.inf, math.inf)
    return Estimate(float(np.median(gaps)), float(gaps[left_out - 1]), float(gaps[-left_out]))


def trimmed_estimate(scores: Any, confidence: float = 0.95, *, trim: bool = True) -> Estimate:
    """The interquartile mean of a few runs with Student's interval for trimmed means (Tukey & McLaughlin, 1963).

    With g = ⌊n/4⌋ runs left out at each end and h = n - 2g kept, the standard error is √(n - 1) s_w/√(h(h - 1)) with
    the deviation s_w of the winsorized scores over n - 1, and h - 1 degrees of freedom. Without trimming this is the mean
    with Student's interval.

    Args:
        scores: a vector of runs; NaN marks a missing run.
        confidence: share of experiments whose interval should contain the true value.
        trim: False takes the mean of all.

    Returns:
        The estimate; one run has no interval, so that both ends are its value.

    Example:
        >>> value, low, high = trimmed_estimate([1.0, 2.0, 3.0])  # 2 ± 4.303 · 1/√3
        >>> value, round(low, 3), round(high, 3)
        (2.0, -0.484, 4.484)
    """
    from scipy.stats import t

    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, but it is {confidence}")
    values = np.sort(_present(np.asarray(scores, dtype=np.float64)))
    n = len(values)
    cut = n // 4 if trim else 0
    kept = n - 2 * cut
    middle = float(interquartile_mean(values)) if trim else float(values.mean()) if n else math.nan
    if kept < 2:
        return Estimate(middle, middle, middle)
    squares = float(np.var(np.clip(values, values[cut], values[n - 1 - cut]))) * n
    reach = float(t.ppf((1 + confidence) / 2, kept - 1)) * math.sqrt(squares / (kept * (kept - 1)))
    return Estimate(middle, middle - reach, middle + reach)


_ROUNDING = 1e-12
"""Sums of probabilities are rounded; 1/20 must count as 5 %."""


def _twice_won(x: Floats, y: Floats) -> NDArray[np.int64]:
    """2 where a run of x wins against one of y, 1 where they tie; infinite scores tie with each other."""
    return np.where(x[:, None] > y, 2, np.where(x[:, None] == y, 1, 0))


@lru_cache(maxsize=1024)
def _null_law(ranks: tuple[int, ...], size: int) -> Floats:
    """The law of twice the number of won pairs, over all choices of `size` runs of the pool.

    Args:
        ranks: twice the rank of each run of the pool, less 1; ties share their mean.
        size: runs of the first method.
    """
    most = sum(ranks)
    ways = np.zeros(
        (size + 1, most + 1)
    )  # By the number of chosen runs and the sum of their ranks.
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : most + 1 - rank].copy()
    pairs = size * (len(ranks) - size)
    law = ways[
        size, size**2 : size**2 + 2 * pairs + 1
    ]  # Pairs within the method have size² in all.
    return np.asarray(law / law.sum())


def _stretch(law: Floats, step: int) -> Floats:
    """The law of a number multiplied by `step`."""
    stretched = np.zeros((len(law) - 1) * step + 1)
    stretched[::step] = law
    return stretched


def _present(scores: Floats) -> Floats:
    return np.asarray(scores[~np.isnan(scores)])


def _matrix(scores: Any) -> Floats:
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2:
        raise InputError(f"scores must be runs × tasks, but their shape is {matrix.shape}")
    return matrix
