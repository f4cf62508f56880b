"""Exact tests and intervals of a few runs, against counting by hand, SciPy and simulation."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, ttest_1samp

from covshift.errors import InputError
from covshift.report.contrasts import compare, difference_estimate, trimmed_estimate
from covshift.report.statistics import interquartile_mean, probability_of_improvement

FEW = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(st.lists(st.tuples(FEW, FEW), min_size=1, max_size=2))
def test_p_values_count_all_assignments(tasks: list[tuple[list[int], list[int]]]) -> None:
    """Runs are dealt out to the methods in every way, within each task; ties and unequal numbers of runs included."""
    longest = [max(len(task[side]) for task in tasks) for side in range(2)]
    x, y = (
        np.array([[*task[side], *[np.nan] * (longest[side] - len(task[side]))] for task in tasks]).T
        for side in range(2)
    )
    dealt = []
    for ours, theirs in tasks:
        pool = np.array([*ours, *theirs], dtype=np.float64)
        values = []
        for chosen in itertools.combinations(range(len(pool)), len(ours)):
            rest = np.delete(pool, chosen)
            values.append(float(probability_of_improvement(pool[list(chosen)], rest)))
        dealt.append(values)
    law = np.array([np.mean(values) for values in itertools.product(*dealt)])
    found = compare(x, y)
    assert found.value == pytest.approx(float(probability_of_improvement(x, y)))
    assert found.better == pytest.approx(np.mean(law >= found.value - 1e-9))
    assert found.worse == pytest.approx(np.mean(law <= found.value + 1e-9))
    assert found.p == pytest.approx(min(1.0, 2 * min(found.better, found.worse)))


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 4), (10, 10)])
def test_one_task_is_the_test_of_mann_and_whitney(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(0.3, 1, n), rng.normal(0, 1, m)
    found = compare(x, y)
    greater = mannwhitneyu(x, y, alternative="greater", method="exact")
    less = mannwhitneyu(x, y, alternative="less", method="exact")
    assert (found.better, found.worse) == pytest.approx((greater.pvalue, less.pvalue))


def test_a_diverged_run_is_infinite_and_a_missing_one_does_not_count() -> None:
    found = compare([np.inf, np.inf, 1.0], [np.inf, 0.0, np.nan])
    # inf ties with inf and beats 0, twice; 1 loses to inf and beats 0: (½ + 1 + ½ + 1 + 0 + 1)/6.
    assert found.value == pytest.approx(4 / 6)
    unknown = compare([np.nan], [1.0])
    assert math.isnan(unknown.value)
    assert (unknown.better, unknown.worse) == (1.0, 1.0)
    with pytest.raises(InputError, match=r"runs × tasks, but their shape is \(2, 2, 2\)"):
        compare(np.zeros((2, 2, 2)), [1.0])


def test_the_interval_of_a_difference_holds_what_the_test_does_not_reject() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(1.0, 1, 5), rng.normal(0, 1, 6)
    value, low, high = difference_estimate(x, y)
    assert low < value < high
    for shift, rejected in (
        (low - 1e-6, True),
        (low + 1e-6, False),
        (high - 1e-6, False),
        (high + 1e-6, True),
    ):
        assert (compare(x - shift, y).p <= 0.05) == rejected
    assert difference_estimate(x, y, 0.8).low > low


def test_three_runs_have_no_bounded_interval_of_a_difference() -> None:
    found = difference_estimate([3.0, 4, 5], [0.0, 1, 2])
    assert found == (3.0, -math.inf, math.inf)  # 2/20 is the smallest two-sided p-value.
    assert difference_estimate([3.0, 4, 5], [0.0, 1, 2], 0.9)[1:] == (1.0, 5.0)
    assert math.isnan(difference_estimate([np.nan], [1.0]).value)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_without_trimming_the_interval_is_students(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    wanted = ttest_1samp(values, 0).confidence_interval(0.9)
    found = trimmed_estimate([*values, np.nan], 0.9, trim=False)
    assert found == pytest.approx((values.mean(), wanted.low, wanted.high))


def test_the_trimmed_interval_by_hand() -> None:
    # 0 1 2 3 9 without its ends: 1 2 3. Winsorized 1 1 2 3 3: squares 4; 4/(3 · 2) under the root, t₂ = 4.303.
    value, low, high = trimmed_estimate([9.0, 0, 3, 1, 2])
    assert value == 2.0
    assert (high - value, value - low) == pytest.approx((4.302653 * math.sqrt(4 / 6),) * 2)
    assert trimmed_estimate([4.0]) == (4.0, 4.0, 4.0)
    assert trimmed_estimate([1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="between 0 and 1, but it is 95"):
        trimmed_estimate([1.0, 2.0], 95)


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("law", ["normal", "skewed"])
def test_intervals_of_few_runs_cover_about_what_they_say(n: int, law: str) -> None:
    """95 %, and no less than 91 % for skewed scores (standard error 0.006)."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        noise = rng.normal(size=shape)
        return noise if law == "normal" else np.exp(0.5 * noise)

    true = float(np.mean(interquartile_mean(draw(100_000, n, 1))))
    found = [trimmed_estimate(draw(n)) for _ in range(1200)]
    covered = np.mean([low <= true <= high for _, low, high in found])
    assert (0.93 if law == "normal" else 0.905) <= covered <= 0.975
