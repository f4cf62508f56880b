import numpy as np
import pytest

from covshift.config.training import RatioOptions, ValueOptions
from covshift.data.format import Rows
from covshift.data.store import Store
from covshift.estimation import as_logs
from covshift.learners.deep import ratio_batch, value_batch


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("cut", [False, True])
def test_value_batches_equal_a_walk(toy_store: Store, steps: int, cut: bool) -> None:
    options = ValueOptions(
        discount=0.9, value_steps=steps, cut_at_life_loss=cut, bootstrap_action="data"
    )
    ids = np.flatnonzero(toy_store.is_transition)
    batch = value_batch(toy_store, ids, options)
    column = toy_store.columns
    for k, start in enumerate(ids):
        total, discount, row = 0.0, 1.0, start
        for _ in range(steps):
            row += 1
            total += discount * min(max(column["reward"][row], -1.0), 1.0)
            discount *= 0.9
            if column["terminated"][row] or (cut and column["life_lost"][row]):
                discount = 0.0
                break
            if column["truncated"][row]:
                break
        assert batch.return_t[k] == pytest.approx(total, abs=1e-6)
        assert batch.discount_t[k] == pytest.approx(discount, abs=1e-6)
        np.testing.assert_array_equal(batch.s_tm1[k], toy_store.states(ids[k : k + 1])[0])
        np.testing.assert_array_equal(batch.s_t[k], toy_store.states(np.array([row]))[0])
        assert batch.a_t is not None
        assert batch.a_t[k] == column["action"][row]
        assert (batch.a_tm1[k], batch.mu_tm1[k]) == (column["action"][start], column["mu"][start])


@pytest.mark.parametrize("cut", [False, True])
def test_traces_equal_a_walk_to_the_end_of_the_episode(toy_store: Store, cut: bool) -> None:
    options = ValueOptions(
        discount=0.9,
        value_trace="retrace",
        trace_steps=4,
        trace_decay=0.5,
        cut_at_life_loss=cut,
    )
    ids = np.flatnonzero(toy_store.is_transition)
    batch = value_batch(toy_store, ids, options)
    column, trace = toy_store.columns, batch.trace
    assert trace is not None
    assert trace.a_window.shape == (3, len(ids))
    for k, start in enumerate(ids):
        total, discount, row = float(batch.return_t[k]), float(batch.discount_t[k]), start + 1
        for step in range(3):
            follows = discount > 0 and column["action"][row] >= 0
            assert trace.decay_window[step, k] == (0.5 if follows else 0.0)
            assert trace.mu_window[step, k] == (column["mu"][row] if follows else 1.0)
            assert trace.a_window[step, k] == (column["action"][row] if follows else 0)
            if follows:
                row += 1
                total += discount * min(max(column["reward"][row], -1.0), 1.0)
                ends = column["terminated"][row] or (cut and column["life_lost"][row])
                discount = 0.0 if ends else 0.9 * discount
            assert trace.return_window[step, k] == pytest.approx(total, abs=1e-6)
            assert trace.discount_window[step, k] == pytest.approx(discount, abs=1e-6)
            np.testing.assert_array_equal(
                trace.s_window[step, k], toy_store.states(np.array([row]))[0]
            )


@pytest.mark.parametrize("steps", [1, 3])
def test_a_running_episode_is_bootstrapped_from_its_newest_row(
    toy_store: Store, steps: int
) -> None:
    """Rows up to the fifth episode's fifth; what follows is not known yet, so that fewer steps are taken."""
    rows = int(np.flatnonzero(toy_store.columns["is_initial"])[4]) + 5
    running = Store(toy_store.codec, 1, 4)
    columns = {name: values[:rows] for name, values in toy_store.columns.items()}
    observations = [toy_store.codec.encode(toy_store.observation(row)) for row in range(rows)]
    running.append(Rows(columns, observations))
    assert running.is_running
    ids = np.flatnonzero(running.is_transition)
    options = ValueOptions(discount=0.9, value_steps=steps, reward_clip=0.0)
    ours, theirs = (value_batch(store, ids, options) for store in (running, toy_store))
    known = ids < rows - steps
    for name in ours._fields[:-1]:
        here, there = getattr(ours, name), getattr(theirs, name)
        if here is None:
            continue
        np.testing.assert_array_equal(here[known], there[known], err_msg=name)
    traced = value_batch(running, ids, ValueOptions(value_trace="retrace", trace_steps=3)).trace
    assert traced is not None
    newest = toy_store.states(np.array([rows - 1]))[0]
    np.testing.assert_array_equal(traced.s_window[:, -1], [newest, newest])
    assert (traced.decay_window[:, -1] == 0).all()
    assert ours.return_t[-1] == toy_store.columns["reward"][rows - 1]
    assert ours.discount_t[-1] == pytest.approx(0.9)
    np.testing.assert_array_equal(ours.s_t[-1], toy_store.states(np.array([rows - 1]))[0])
    logs, whole = as_logs(running), as_logs(toy_store)
    assert logs.num_transitions == len(ids) - 1
    assert logs.truncated[-1]
    np.testing.assert_array_equal(logs.reward, whole.reward[: logs.num_transitions])
    np.testing.assert_array_equal(logs.trajectory, whole.trajectory[: logs.num_transitions])


def test_rewards_are_left_alone_where_the_clip_is_zero(toy_store: Store) -> None:
    ids = np.flatnonzero(toy_store.is_transition)
    batch = value_batch(toy_store, ids, ValueOptions(reward_clip=0.0))
    np.testing.assert_array_equal(batch.return_t, toy_store.columns["reward"][ids + 1])
    assert np.abs(batch.return_t).max() > 1.0


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_ratio_batches_equal_a_walk_backwards(toy_store: Store, steps: int) -> None:
    column = toy_store.columns
    ids = np.flatnonzero(toy_store.is_state)
    batch = ratio_batch(toy_store, ids, RatioOptions(ratio_steps=steps))
    assert batch.is_trained_t.all()
    for k, row in enumerate(ids):
        np.testing.assert_array_equal(batch.s_t[k], toy_store.states(ids[k : k + 1])[0])
        at = row
        for step in reversed(range(steps)):
            assert batch.is_initial_window[step, k] == column["is_initial"][at]
            if column["is_initial"][at]:
                break
            at -= 1
            assert batch.a_window[step, k] == column["action"][at]
            assert batch.mu_window[step, k] == column["mu"][at]
            np.testing.assert_array_equal(
                batch.s_window[step, k], toy_store.states(np.array([at]))[0]
            )


def test_restart_steps_over_the_end_of_an_episode(toy_store: Store) -> None:
    column = toy_store.columns
    ids = np.flatnonzero(toy_store.is_state)
    batch = ratio_batch(toy_store, ids, RatioOptions(semantics="restart"))
    starts = np.flatnonzero(column["is_initial"][ids])
    crossed = 0
    for k in starts:
        row = ids[k]
        follows_end = row > 0 and column["terminated"][row - 1]
        # After a truncation, and at the very first, nothing is known of what came before.
        assert batch.is_trained_t[k] == follows_end
        if follows_end:
            crossed += 1
            assert not batch.is_initial_window[0, k]
            assert batch.a_window[0, k] == column["action"][row - 2]
            np.testing.assert_array_equal(
                batch.s_window[0, k], toy_store.states(np.array([row - 2]))[0]
            )
    assert 0 < crossed < len(starts)


def test_the_second_reading_trains_no_initial_state(toy_store: Store) -> None:
    ids = np.flatnonzero(toy_store.is_state)
    batch = ratio_batch(toy_store, ids, RatioOptions(initial_rule="source"))
    initial = toy_store.columns["is_initial"]
    np.testing.assert_array_equal(batch.is_trained_t, ~initial[ids])
    later = ~initial[ids]
    np.testing.assert_array_equal(batch.is_source_initial[later], initial[ids[later] - 1])


def test_terminal_rows_have_no_target(toy_store: Store) -> None:
    rows = np.flatnonzero(toy_store.columns["terminated"])
    assert not ratio_batch(toy_store, rows, RatioOptions()).is_trained_t.any()


@pytest.mark.parametrize("steps", [2, 3])
def test_windows_of_several_steps_under_restart_and_under_the_source_rule(
    toy_store: Store, steps: int
) -> None:
    """Restart steps over ends and needs n predecessors; the source rule stops at a start and leaves only starts out."""
    column, ids = toy_store.columns, np.flatnonzero(toy_store.is_state)
    restart = ratio_batch(toy_store, ids, RatioOptions(semantics="restart", ratio_steps=steps))
    source = ratio_batch(toy_store, ids, RatioOptions(initial_rule="source", ratio_steps=steps))
    seen = set()
    for k, row in enumerate(ids):
        walk = [int(row)]
        while len(walk) <= steps:  # The rows that were acted in, in reverse.
            at = walk[-1]
            if not column["is_initial"][at]:
                walk.append(at - 1)
            elif at > 0 and column["terminated"][at - 1]:
                walk.append(at - 2)
            else:
                break
        known = len(walk) > steps
        seen.add((known, len(walk) > 1))
        walk = walk[:0:-1]
        assert restart.is_trained_t[k] == known
        if known:
            np.testing.assert_array_equal(restart.s_window[:, k], toy_store.states(np.array(walk)))
            np.testing.assert_array_equal(restart.a_window[:, k], column["action"][walk])
            assert not restart.is_initial_window[:, k].any()
        # Back to the start of the episode at most; step j of n is none where it would go beyond.
        age = int(row) - int(np.flatnonzero(column["is_initial"][: row + 1])[-1])
        assert source.is_trained_t[k] == (age > 0)
        first = int(row) - min(age, steps)
        np.testing.assert_array_equal(source.s_window[0, k], toy_store.states(np.array([first]))[0])
        assert source.is_initial_window[:, k].tolist() == [age < steps - j for j in range(steps)]
        assert source.is_source_initial[k] == bool(column["is_initial"][first])
    assert (False, True) in seen  # A state with one predecessor, but not with all.
