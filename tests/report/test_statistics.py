import importlib
import itertools
import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import trim_mean

from covshift.errors import InputError
from covshift.report.statistics import (
    Curve,
    Estimate,
    curve_band,
    interquartile_mean,
    mean_score,
    percentile_interval,
    probability_of_improvement,
    resample,
)


def bootstrap_estimate(scores: Any, rng: np.random.Generator, **options: Any) -> Estimate:
    """The band of curves with one point."""
    matrix = np.asarray(scores, dtype=np.float64)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    curves = [Curve([0], [y], str(task)) for task, column in enumerate(matrix.T) for y in column]
    band = curve_band(curves, rng, **options)
    return Estimate(float(band.middle[0]), float(band.low[0]), float(band.high[0]))


GOLDEN = Path(__file__).parent / "rliable_golden.json"
SCORES = arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.integers(-4, 4)
)


def test_interquartile_mean_by_hand() -> None:
    # Sorted 0 1 2 3 4 5 6 70: two go at each end, (2 + 3 + 4 + 5)/4 is left.
    scores = np.array([[70.0, 2.0], [0.0, 5.0], [3.0, 4.0], [6.0, 1.0]])
    assert interquartile_mean(scores) == 3.5
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == 4.0  # ⌊3/4⌋ = 0: nothing goes.
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, 3.0, 4.0])) == 3.0  # One at each end.
    assert np.isnan(interquartile_mean(np.array([np.nan])))


@given(SCORES)
def test_interquartile_mean_is_scipys_trimmed_mean(scores: Any) -> None:
    expected = trim_mean(scores, 0.25, axis=None)
    assert interquartile_mean(scores) == pytest.approx(expected)
    padded = np.concatenate([scores, np.full((2, scores.shape[1]), np.nan)])
    assert interquartile_mean(padded) == pytest.approx(expected)


def test_mean_weighs_tasks_alike() -> None:
    scores = np.array([[1.0, 10.0], [3.0, np.nan], [5.0, np.nan]])
    assert mean_score(scores) == 6.5  # (3 + 10)/2, where the pool's mean is 19/4.
    assert mean_score(scores[:, 1:]) == 10.0


def test_probability_of_improvement_by_hand() -> None:
    # Task 1: 3 beats both of 1 and 2, 2 beats 1 and ties with 2: (1 + 1 + 1 + ½)/4. Task 2: 0 loses, 5 wins.
    x, y = np.array([[3.0, 0.0], [2.0, 5.0]]), np.array([[1.0, 4.0], [2.0, 4.0]])
    assert probability_of_improvement(x, y) == (3.5 / 4 + 0.5) / 2
    # A missing run is no loss.
    assert probability_of_improvement(np.array([3.0, np.nan]), np.array([1.0, 2.0, np.nan])) == 1.0
    with pytest.raises(InputError, match="the same tasks, but one has 2 and one 1"):
        probability_of_improvement(x, y[:, :1])


@given(SCORES, SCORES)
def test_improvements_of_both_sides_add_up_to_one(x: Any, y: Any) -> None:
    tasks = min(x.shape[1], y.shape[1])
    x, y = x[:, :tasks], y[:, :tasks]
    forth, back = probability_of_improvement(x, y), probability_of_improvement(y, x)
    assert forth + back == pytest.approx(1.0)
    assert probability_of_improvement(x, x) == pytest.approx(0.5)
    assert probability_of_improvement(x + 9, y) == 1.0


@given(st.floats(-5, 5), st.integers(1, 6), st.integers(1, 3))
def test_constant_scores_have_an_interval_without_width(
    value: float, runs: int, tasks: int
) -> None:
    found = bootstrap_estimate(
        np.full((runs, tasks), value), np.random.default_rng(0), resamples=50
    )
    assert found == pytest.approx(Estimate(value, value, value))


def test_resampling_stays_within_tasks() -> None:
    # Tasks are apart by 100, and each has one value: a draw across tasks would be seen.
    scores = np.array([[0.0, 100.0, np.nan], [0.0, 100.0, np.nan], [np.nan, 100.0, 200.0]])
    drawn = resample(scores, np.random.default_rng(0).random((500, 3, 3)))
    for task in range(3):
        there = np.isfinite(scores[:, task]).sum()
        values = drawn[:, :, task]
        assert np.array_equal(np.isfinite(values).sum(axis=1), np.full(500, there))
        assert set(values[np.isfinite(values)]) == {100.0 * task}


def test_interval_is_that_of_all_resamples() -> None:
    # Three runs have 27 equally likely resamples, so that the bootstrap's law is known exactly: the mean is below
    # its 0.1-quantile, found by counting, in a tenth of all draws.
    runs = np.array([0.0, 1.0, 5.0])
    law = np.sort([np.mean(draw) for draw in itertools.product(runs, repeat=3)])
    exact = np.quantile(law, [0.1, 0.9], method="inverted_cdf")
    found = bootstrap_estimate(
        runs, np.random.default_rng(1), statistic=mean_score, confidence=0.8, resamples=20_000
    )
    assert found.value == 2.0
    assert (found.low, found.high) == pytest.approx(tuple(exact))


def test_the_same_seed_gives_the_same_interval() -> None:
    runs = np.random.default_rng(2).normal(size=(5, 3))
    found = [bootstrap_estimate(runs, np.random.default_rng(seed)) for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    # 20 normal runs, 90 %: the bootstrap's variance is short by a factor 19/20 and normal instead of t, so that
    # it covers about P(|t_19| < 1.645 √(19/20)) = 0.875. 400 trials: standard error 0.017.
    rng = np.random.default_rng(6)
    hits = 0
    for _ in range(400):
        found = bootstrap_estimate(
            rng.normal(3.0, 2.0, 20), rng, statistic=mean_score, confidence=0.9, resamples=400
        )
        hits += found.low <= 3.0 <= found.high
    assert hits / 400 == pytest.approx(0.875, abs=0.05)


def test_band_ends_a_diverged_run_where_it_ended() -> None:
    long, short = Curve([0, 10, 20], [0.0, 2.0, 4.0]), Curve([0, 10], [4.0, 8.0])
    band = curve_band([long, short], np.random.default_rng(0))
    assert band.x.tolist() == [0, 10, 20]
    assert band.alive.tolist() == [2, 2, 1]
    # Carrying 8 on would give 6 at the end, counting it as zero 2.
    assert band.middle.tolist() == [2.0, 5.0, 4.0]
    assert band.low.tolist() == [0.0, 2.0, 4.0]
    assert band.high.tolist() == [4.0, 8.0, 4.0]


def test_band_leaves_out_values_that_are_not_finite() -> None:
    band = curve_band(
        [Curve([0, 1, 2], [1.0, np.nan, np.inf]), Curve([0, 1], [3.0, 5.0])],
        np.random.default_rng(0),
    )
    assert band.x.tolist() == [0, 1]
    assert band.middle.tolist() == [2.0, 5.0]
    assert band.alive.tolist() == [2, 1]


def test_band_is_the_estimate_at_each_x() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(5, 2, 4))
    curves = [Curve(range(4), values[run, task], str(task)) for task in (1, 0) for run in range(5)]
    band = curve_band(curves, np.random.default_rng(1), confidence=0.8)
    for k in range(4):
        matrix = values[:, ::-1, k]  # Tasks come in the order of the curves.
        found = bootstrap_estimate(matrix, np.random.default_rng(1), confidence=0.8)
        assert (band.middle[k], band.low[k], band.high[k]) == pytest.approx(tuple(found))


def test_band_of_nothing_is_empty() -> None:
    band = curve_band([], np.random.default_rng(0))
    assert [len(part) for part in band] == [0, 0, 0, 0, 0]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="between 0 and 1, but it is 95"):
        bootstrap_estimate([1.0], np.random.default_rng(0), confidence=95)
    with pytest.raises(InputError, match="resamples must be at least 1, but it is 0"):
        bootstrap_estimate([1.0], np.random.default_rng(0), resamples=0)
    with pytest.raises(InputError, match="it has 1 for 2"):
        curve_band([Curve([0, 1], [0.0])], np.random.default_rng(0))


def rliable_draws(shapes: list[tuple[int, ...]], seed: int, resamples: int) -> list[Any]:
    """The runs that rliable draws, as uniform numbers that draw the same."""
    generator = np.random.RandomState(seed)
    drawn: list[list[Any]] = [[] for _ in shapes]
    for _ in range(resamples):
        for k, shape in enumerate(shapes):
            drawn[k].append((generator.choice(shape[0], shape) + 0.5) / shape[0])
    return [np.array(part) for part in drawn]


def check_against_rliable(inputs: dict[str, Any], answers: dict[str, Any]) -> None:
    """The same resamples must give the same numbers, but for rounding."""
    x, y, curves = (np.array(inputs[name]) for name in ("x", "y", "curves"))
    draw = 11, 400

    def equal(name: str, values: Any, intervals: Any) -> None:
        found = answers[name]
        assert found["value"] == pytest.approx(np.ravel(values), abs=1e-12)
        assert found["low"] == pytest.approx([low for low, _ in intervals], abs=1e-12)
        assert found["high"] == pytest.approx([high for _, high in intervals], abs=1e-12)

    (uniforms,) = rliable_draws([x.shape], *draw)
    for name, statistic in (("iqm", interquartile_mean), ("mean", mean_score)):
        interval = percentile_interval(statistic(resample(x, uniforms)), 0.95)
        equal(name, statistic(x), [interval])
    of_x, of_y = rliable_draws([x.shape, y.shape], *draw)
    drawn = probability_of_improvement(resample(x, of_x), resample(y, of_y))
    equal("improvement", probability_of_improvement(x, y), [percentile_interval(drawn, 0.95)])
    (uniforms,) = rliable_draws([curves.shape], *draw)
    frames = [interquartile_mean(resample(curves[..., k], uniforms[..., k])) for k in range(3)]
    middle = [interquartile_mean(curves[..., k]) for k in range(3)]
    equal("curves", middle, [percentile_interval(frame, 0.95) for frame in frames])


def test_agrees_with_what_rliable_said() -> None:
    golden = json.loads(GOLDEN.read_text())
    check_against_rliable(golden["inputs"], golden["rliable"])
    # And with draws of our own, but for chance: each end moves by its Monte Carlo error.
    x, said = np.array(golden["inputs"]["x"]), golden["rliable"]["iqm"]
    ours = bootstrap_estimate(x, np.random.default_rng(0))
    width = said["high"][0] - said["low"][0]
    assert math.hypot(ours.low - said["low"][0], ours.high - said["high"][0]) < 0.15 * width


def test_agrees_with_rliable_itself() -> None:
    try:
        importlib.import_module("rliable.library")
    except Exception as error:  # arch fails with a TypeError where pandas is 3 or newer.
        pytest.skip(f"rliable cannot be imported ({error}); its golden values were compared")
    script = runpy.run_path(str(GOLDEN.with_suffix(".py")))
    given = script["scores"]()
    check_against_rliable(given, script["rliable_says"](given))
