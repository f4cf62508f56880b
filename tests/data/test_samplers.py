import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covshift.data.samplers import ListSampler, PrioritizedSampler, UniformSampler
from covshift.errors import InputError


def eligible(size: int = 200) -> np.ndarray:
    flags = np.ones(size, dtype=bool)
    flags[9::10] = False
    return flags


def test_uniform_draws_every_eligible_row_equally_often() -> None:
    sampler = UniformSampler(eligible(), np.random.default_rng(0), (20, 60))
    sampler.check_valid()
    counts = np.bincount(sampler.sample(200_000), minlength=200)
    assert set(np.flatnonzero(counts)) == {row for row in range(20, 60) if row % 10 != 9}
    assert np.abs(counts[counts > 0] / 200_000 - 1 / 36).max() < 5 * np.sqrt(1 / 36 / 200_000)


def prioritized(**options: float) -> PrioritizedSampler:
    sampler = PrioritizedSampler(eligible(), np.random.default_rng(0), 50, **options)
    sampler.slide(20, 60, priority=2.0)
    return sampler


def test_a_list_of_rows_is_drawn_from_like_a_window() -> None:
    sampler = ListSampler(eligible(), np.random.default_rng(0), (20, 60))
    expected = 20 + np.flatnonzero(eligible()[20:60])
    assert sampler.count == len(expected)
    rows, counts = np.unique(sampler.sample(200_000), return_counts=True)
    np.testing.assert_array_equal(rows, expected)
    assert np.abs(counts / 200_000 - 1 / 36).max() < 5 * np.sqrt(1 / 36 / 200_000)
    sampler.slide(0, 5, np.zeros(5, dtype=bool))
    assert len(sampler.sample(3)) == sampler.count == 0


def test_rows_are_drawn_as_often_as_their_probabilities_say() -> None:
    for options in ({}, {"tempering": 0.5}, {"uniform_share": 0.3}, {"floor": 0.5}):
        sampler = prioritized(**options)
        sampler.update(np.arange(20, 40), np.linspace(0.0, 4.0, 20))
        sampler.check_valid()
        rows = np.flatnonzero(eligible()[:60])
        rows = rows[rows >= 20]
        expected = sampler.probabilities(rows)
        assert expected.sum() == pytest.approx(1.0)
        counts = np.bincount(
            np.concatenate([sampler.sample(64) for _ in range(4000)]), minlength=200
        )
        assert counts[[row for row in range(200) if row not in rows]].sum() == 0
        share = counts[rows] / counts.sum()
        # Stratified draws vary less than independent ones: five of those standard errors suffice.
        assert (np.abs(share - expected) < 5 * np.sqrt(expected / counts.sum()) + 1e-6).all(), (
            options
        )


def test_probabilities_of_two_rows_by_hand() -> None:
    sampler = PrioritizedSampler(np.ones(2, dtype=bool), np.random.default_rng(0), 2, tempering=0.5)
    sampler.slide(0, 2)
    sampler.update([0, 1], [1.0, 9.0])
    np.testing.assert_allclose(sampler.probabilities([0, 1]), [0.25, 0.75])
    sampler = PrioritizedSampler(np.ones(2, dtype=bool), np.random.default_rng(0), 2, floor=1.0)
    sampler.slide(0, 2)
    sampler.update([0, 1], [-3.0, 3.0])
    np.testing.assert_allclose(sampler.probabilities([0, 1]), [0.25, 0.75])


def test_rows_that_cannot_be_drawn_have_probability_zero() -> None:
    sampler = prioritized(uniform_share=0.5)
    np.testing.assert_array_equal(sampler.probabilities([70, 5, 29]), [0.0, 0.0, 0.0])
    never = prioritized(floor=0.0, tempering=0.0)
    never.update([25], [0.0])
    assert never.probabilities([25])[0] == 0.0
    assert 25 not in np.concatenate([never.sample(64) for _ in range(50)])


def test_each_draw_comes_from_its_own_stratum() -> None:
    sampler = PrioritizedSampler(np.ones(64, dtype=bool), np.random.default_rng(0), 64)
    sampler.slide(0, 64)
    for _ in range(20):
        np.testing.assert_array_equal(sampler.sample(64), np.arange(64))


def test_windows_slide_to_rows_that_were_appended() -> None:
    grown = np.ones(260, dtype=bool)
    for sampler in (UniformSampler(eligible(), np.random.default_rng(0)), prioritized()):
        sampler.slide(220, 260, eligible=grown)
        assert set(sampler.sample(500)) <= set(range(220, 260))
    with pytest.raises(InputError, match="priority must be finite and not negative, but it is -1"):
        prioritized().slide(25, 60, priority=-1.0)


@given(st.integers(0, 2**32 - 1))
def test_priorities_in_a_sliding_window_equal_those_of_a_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flags = eligible(400)
    sampler = PrioritizedSampler(flags[:1], np.random.default_rng(0), 30, floor=0.0)
    expected: dict[int, float] = {}
    lo = hi = 0
    for _ in range(15):
        hi = min(hi + int(rng.integers(1, 12)), 400)
        lo = max(lo, hi - 30)
        sampler.slide(lo, hi, priority=1.5, eligible=flags[: min(400, hi + 5)])
        expected = {row: value for row, value in expected.items() if row >= lo}
        expected |= {row: expected.get(row, 1.5) for row in range(lo, hi) if flags[row]}
        ids = rng.integers(max(0, lo - 5), min(400, hi + 5), 6)
        values = rng.integers(0, 3, 6).astype(float)
        sampler.update(ids, values)
        expected |= {
            int(i): float(v) for i, v in zip(ids, values, strict=True) if int(i) in expected
        }
        sampler.check_valid()
        total = sum(expected.values())
        if total > 0:
            rows = list(expected)
            np.testing.assert_allclose(
                sampler.probabilities(rows), [expected[row] / total for row in rows]
            )
            assert all(expected[int(row)] > 0 for row in sampler.sample(20))


def test_the_effective_share_is_that_of_the_law() -> None:
    """N - 1 rows of priority 1 and one of N - 1, in units of 2: (Σp)²/(N Σp²) = 4(N - 1)²/(N(N - 1 + (N - 1)²)) = 4(N - 1)/N²."""
    sampler = prioritized()
    rows = np.arange(20, 60)[eligible()[20:60]]
    assert sampler.effective_share() == pytest.approx(1.0)
    size = len(rows)
    sampler.update(rows[:1], [2.0 * (size - 1)])
    assert sampler.effective_share() == pytest.approx(4 * (size - 1) / size**2)
    mixed = prioritized(uniform_share=0.5)
    mixed.update(rows[:1], [2.0 * (size - 1)])
    law = mixed.probabilities(rows)
    assert mixed.effective_share() == pytest.approx(1 / (size * (law**2).sum()))


@pytest.mark.parametrize("uniform_share", [0.0, 0.2])
def test_the_tempering_is_the_largest_that_keeps_the_effective_share(uniform_share: float) -> None:
    sampler = prioritized(floor=1e-9, uniform_share=uniform_share)
    rows = np.arange(20, 60)[eligible()[20:60]]
    raw = np.exp(np.random.default_rng(1).normal(0.0, 2.0, len(rows)))
    sampler.update(rows, raw)
    sampler.keep_effective_share(0.5)
    sampler.check_valid()
    assert 0.01 < sampler.tempering < 1.0
    assert sampler.effective_share() == pytest.approx(0.5, abs=1e-4)
    assert sampler.effective_share() >= 0.5
    law = (1 - uniform_share) * raw**sampler.tempering / (raw**sampler.tempering).sum()
    np.testing.assert_allclose(sampler.probabilities(rows), law + uniform_share / len(rows))
    sampler.keep_effective_share(0.7)  # From one tempering to another.
    assert sampler.effective_share() == pytest.approx(0.7, abs=1e-4)
    sampler.update(rows, np.ones(len(rows)))
    sampler.keep_effective_share(0.5)
    assert sampler.tempering == 1.0
    tempered = prioritized(tempering=0.5)
    tempered.keep_effective_share(0.1)
    assert tempered.tempering == 0.5  # never above what was asked for
    empty = prioritized(floor=0.0)
    empty.update(rows, np.zeros(len(rows)))
    empty.keep_effective_share(0.5)
    assert empty.tempering == 1.0


def test_a_restored_sampler_draws_the_same_rows() -> None:
    for make in (
        lambda: UniformSampler(eligible(), np.random.default_rng(0), (20, 60)),
        lambda: ListSampler(eligible(), np.random.default_rng(0), (20, 60)),
        lambda: prioritized(uniform_share=0.2),
    ):
        first = make()
        first.sample(10)
        if isinstance(first, PrioritizedSampler):
            first.update([25, 26], [7.0, 0.1])
            first.keep_effective_share(0.9)
        saved = first.save()
        priorities = saved.pop("priorities", None)
        plain = json.loads(json.dumps(saved))
        second = make()
        second.restore(plain if priorities is None else plain | {"priorities": priorities.copy()})
        for _ in range(3):
            np.testing.assert_array_equal(first.sample(17), second.sample(17))
            if isinstance(first, PrioritizedSampler) and isinstance(second, PrioritizedSampler):
                for sampler in (first, second):
                    sampler.update([27, 28], [3.0, 0.5])


def test_bad_windows_and_settings_are_refused() -> None:
    sampler = prioritized()
    with pytest.raises(InputError, match=r"moves forwards only, but \(10, 60\) follows \(20, 60\)"):
        sampler.slide(10, 60)
    with pytest.raises(InputError, match="longer than the capacity 50"):
        sampler.slide(20, 80)
    with pytest.raises(InputError, match="does not lie within the 200 rows"):
        UniformSampler(eligible(), np.random.default_rng(0), (150, 201))
    with pytest.raises(InputError, match="no row of the window"):
        UniformSampler(eligible(), np.random.default_rng(0), (9, 10))
    with pytest.raises(InputError, match=r"tempering must lie in \[0, 1\], but it is 2"):
        prioritized(tempering=2.0)
