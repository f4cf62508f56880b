from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covshift.data.format import COLUMNS, Rows, read_rows, stack_rows, write_shard
from covshift.data.frames import FrameCodec, train_dictionary
from covshift.data.segments import GrowingArray
from covshift.data.store import Store
from covshift.errors import InputError

FRAME = (40, 40)
STACK = 4


def frames(rng: np.random.Generator, count: int) -> np.ndarray:
    """Blocky pictures of more than a kilobyte."""
    return np.kron(rng.integers(0, 255, (count, 8, 8)), np.ones((1, 5, 5))).astype(np.uint8)


WORDS = train_dictionary([frame.tobytes() for frame in frames(np.random.default_rng(0), 500)])
CODEC = FrameCodec(FRAME, np.dtype(np.uint8), WORDS)


def episode(rng: np.random.Generator, number: int, stream: int) -> tuple[Rows, np.ndarray]:
    steps = int(rng.integers(1, 9))
    pictures = frames(rng, steps + 1)
    last = np.arange(steps + 1) == steps
    terminated = bool(rng.random() < 0.7)
    columns: dict[str, Any] = {
        "action": np.where(last, -1, rng.integers(0, 3, steps + 1)),
        "mu": np.where(last, np.nan, rng.random(steps + 1) * 0.9 + 0.1),
        "policy": rng.integers(0, 2, steps + 1),
        "reward": np.where(np.arange(steps + 1) == 0, 0, rng.standard_normal(steps + 1)),
        "terminated": last & terminated,
        "truncated": last & (not terminated),
        "life_lost": rng.random(steps + 1) < 0.2,
        "is_initial": np.arange(steps + 1) == 0,
        "episode": np.full(steps + 1, number),
        "stream": np.full(steps + 1, stream),
    }
    typed = {name: columns[name].astype(COLUMNS[name].to_pandas_dtype()) for name in COLUMNS}
    return Rows(typed, [CODEC.encode(picture) for picture in pictures]), pictures


def experience(seed: int, count: int = 7) -> tuple[list[Rows], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    both = [episode(rng, number, number // 4) for number in range(count)]
    return [rows for rows, _ in both], [pictures for _, pictures in both]


def store_of(*parts: Rows) -> Store:
    """A store of rows in memory."""
    store = Store(CODEC, STACK, 3)
    for rows in parts:
        store.append(rows)
    return store


def piece(rows: Rows, start: int, stop: int) -> Rows:
    columns = {name: values[start:stop] for name, values in rows.columns.items()}
    return Rows(columns, rows.observations[start:stop])


def plain_states(episodes: list[np.ndarray]) -> list[np.ndarray]:
    """The stack of every row, from plain lists of frames."""
    states = []
    for pictures in episodes:
        for t in range(len(pictures)):
            stack = [
                pictures[k] if k >= 0 else np.zeros(FRAME) for k in range(t - STACK + 1, t + 1)
            ]
            states.append(np.stack(stack).astype(np.uint8))
    return states


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_batches_equal_plain_lists(seed: int) -> None:
    parts, episodes = experience(seed)
    rows, expected = stack_rows(parts), plain_states(episodes)
    store = store_of(rows)
    store.check_valid()
    ids = np.flatnonzero(store.is_transition)
    batch = store.gather(ids)
    for k, row in enumerate(ids):
        np.testing.assert_array_equal(batch.s_tm1[k], expected[row])
        np.testing.assert_array_equal(batch.s_t[k], expected[row + 1])
        assert batch.a_tm1[k] == rows.columns["action"][row]
        assert batch.mu_tm1[k] == rows.columns["mu"][row]
        assert batch.r_t[k] == rows.columns["reward"][row + 1]
        assert batch.terminated_t[k] == rows.columns["terminated"][row + 1]
        assert batch.truncated_t[k] == rows.columns["truncated"][row + 1]
        assert batch.life_lost_t[k] == rows.columns["life_lost"][row + 1]
        assert batch.is_initial_tm1[k] == rows.columns["is_initial"][row]
    assert batch.s_tm1.flags.c_contiguous
    assert batch.s_tm1.dtype == np.uint8


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_states_come_with_their_predecessors(seed: int) -> None:
    parts, episodes = experience(seed)
    rows, expected = stack_rows(parts), plain_states(episodes)
    store = store_of(rows)
    ids = np.flatnonzero(store.is_state)
    assert not rows.columns["terminated"][ids].any()
    for restart in (False, True):
        batch = store.gather_states(ids, restart=restart)
        for k, row in enumerate(ids):
            np.testing.assert_array_equal(batch.s_t[k], expected[row])
            before = int(row) - 1
            if rows.columns["is_initial"][row]:
                # Only with restarts, in the same stream, and after a real end.
                joined = restart and row > 0 and bool(rows.columns["terminated"][row - 1])
                joined = joined and rows.columns["stream"][row - 1] == rows.columns["stream"][row]
                before = int(row) - 2 if joined else -1
            assert batch.is_initial_t[k] == (before < 0)
            if before < 0:
                assert (batch.s_tm1[k] == 0).all()
                assert (batch.a_tm1[k], batch.mu_tm1[k]) == (0, 1.0)
            else:
                np.testing.assert_array_equal(batch.s_tm1[k], expected[before])
                assert batch.a_tm1[k] == rows.columns["action"][before]
                assert batch.mu_tm1[k] == rows.columns["mu"][before]


def test_restarts_join_only_episodes_that_follow_each_other() -> None:
    """One stream a shard: the last episode of a shard and the first of the next stand side by side."""
    rng = np.random.default_rng(0)
    parts = [episode(rng, number, 0)[0] for number in (0, 1, 1_000_000, 1_000_001)]
    for rows in parts:
        rows.columns["terminated"][-1], rows.columns["truncated"][-1] = True, False
    store = store_of(*parts)
    store.check_valid()
    starts = np.flatnonzero(store.columns["is_initial"])
    batch = store.gather_states(starts, restart=True)
    np.testing.assert_array_equal(batch.is_initial_t, [True, False, True, False])


def test_sealed_shards_and_an_open_tail_are_the_same(tmp_path: Path) -> None:
    parts, _ = experience(3, count=9)
    tail_only = store_of(stack_rows(parts))
    first, second = stack_rows(parts[:4]), stack_rows(parts[4:6])
    write_shard(tmp_path / "a.arrow", first, CODEC)
    write_shard(tmp_path / "b.arrow", second, CODEC)
    paths = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    mixed = Store.of_shards(paths[:1], CODEC, STACK, 3)
    mixed.append_shard(paths[1])
    mixed.append(stack_rows(parts[6:8]))
    mixed.append(parts[8])
    mixed.check_valid()
    assert mixed.segment_sizes() == [len(first), len(second), sum(map(len, parts[6:]))]
    ids = np.flatnonzero(tail_only.is_transition)
    np.testing.assert_array_equal(ids, np.flatnonzero(mixed.is_transition))
    for ours, theirs in zip(tail_only.gather(ids), mixed.gather(ids), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    again = read_rows(tmp_path / "a.arrow")
    assert again.observations == first.observations
    for name in COLUMNS:
        np.testing.assert_array_equal(again.columns[name], first.columns[name])


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_a_growing_store_has_every_row_whose_outcome_is_known(seed: int) -> None:
    parts, _ = experience(seed)
    rows = stack_rows(parts)
    whole, growing = store_of(rows), Store(CODEC, STACK, 3)
    assert len(growing) == 0
    growing.check_valid()
    rng = np.random.default_rng(seed)
    at, early = 0, growing.is_transition
    while at < len(rows):
        step = int(rng.integers(1, 5))
        growing.append(piece(rows, at, at + step))
        at = min(at + step, len(rows))
        growing.check_valid()
        # The newest row of a running episode waits for the next one.
        running = bool(rows.columns["action"][at - 1] >= 0)
        assert growing.is_running == running
        assert len(growing) == at - running
        np.testing.assert_array_equal(growing.is_transition, whole.is_transition[: len(growing)])
        np.testing.assert_array_equal(growing.is_state, whole.is_state[: len(growing)])
        for name in COLUMNS:
            np.testing.assert_array_equal(growing.columns[name], rows.columns[name][: len(growing)])
        ids = np.flatnonzero(growing.is_transition)
        for ours, theirs in zip(growing.gather(ids), whole.gather(ids), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        states = np.flatnonzero(growing.is_state)
        for restart in (False, True):
            both = (store.gather_states(states, restart=restart) for store in (growing, whole))
            for ours, theirs in zip(*both, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        if running:
            with pytest.raises(InputError, match=f"row {at - 1} is not among"):
                growing.states(np.array([at - 1]))
    assert len(early) == 0


def test_rows_that_do_not_go_on_where_the_last_ended_are_refused(tmp_path: Path) -> None:
    parts, _ = experience(2)
    store = store_of(parts[0], piece(parts[1], 0, 1))
    size = len(store)
    with pytest.raises(InputError, match="episode 1 is still running: append its rows"):
        store.append(parts[2])
    write_shard(tmp_path / "a.arrow", parts[2], CODEC)
    with pytest.raises(InputError, match="episode 1 is still running"):
        store.append_shard(tmp_path / "a.arrow")
    assert len(store) == size
    with pytest.raises(InputError, match="start within an episode"):
        Store(CODEC, STACK, 3).append(piece(parts[1], 1, 2))
    write_shard(tmp_path / "b.arrow", piece(parts[1], 0, 1), CODEC)
    with pytest.raises(InputError, match=r"b\.arrow ends within an episode"):
        Store(CODEC, STACK, 3).append_shard(tmp_path / "b.arrow")


def test_growing_copies_each_entry_less_than_twice_on_average() -> None:
    array = GrowingArray(np.int64)
    moved, place = 0, array.rows.__array_interface__["data"][0]
    for k in range(5000):
        array.extend([k])
        if array.rows.__array_interface__["data"][0] != place:
            moved, place = moved + k, array.rows.__array_interface__["data"][0]
    np.testing.assert_array_equal(array.rows, np.arange(5000))
    assert moved < 2 * 5000


def test_a_shard_may_stand_several_times(tmp_path: Path) -> None:
    parts, _ = experience(4)
    write_shard(tmp_path / "a.arrow", stack_rows(parts), CODEC)
    once = Store.of_shards([tmp_path / "a.arrow"], CODEC, STACK, 3)
    thrice = Store.of_shards([tmp_path / "a.arrow"] * 3, CODEC, STACK, 3)
    assert len(thrice) == 3 * len(once)
    ids = np.flatnonzero(once.is_transition)
    for ours, theirs in zip(once.gather(ids), thrice.gather(ids + 2 * len(once)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.bool_, (10, 10, 4)), (np.float32, (4,)), (np.int64, ()), (np.uint8, (6,))],
)
def test_small_observations_are_stored_plain(
    dtype: type, shape: tuple[int, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    codec = FrameCodec(shape, np.dtype(dtype))
    observations: np.ndarray = (rng.random((5, *shape)) * 2).astype(dtype)
    columns = {
        name: values[:5] for name, values in stack_rows(experience(0)[0]).cut(3).columns.items()
    }
    rows = Rows(columns, [codec.encode(o) for o in observations[: len(columns["action"])]])
    write_shard(tmp_path / "a.arrow", rows, codec)
    sealed, tail = Store.of_shards([tmp_path / "a.arrow"], codec, 1, 3), Store(codec, 1, 3)
    tail.append(rows)
    for store in (sealed, tail):
        np.testing.assert_array_equal(store.states(np.arange(len(rows))), observations[: len(rows)])
    assert codec.encoding == ("bits" if dtype is np.bool_ else "raw")
    if dtype is np.bool_:
        assert len(codec.encode(observations[0])) == 50


def test_a_cut_keeps_so_many_transitions_and_marks_the_end() -> None:
    parts, _ = experience(5)
    rows = stack_rows(parts)
    for count in range(1, rows.num_transitions + 1):
        cut = rows.cut(count)
        assert cut.num_transitions == count
        store_of(cut).check_valid()
        ended = rows.columns["terminated"][len(cut) - 1]
        assert cut.columns["terminated"][-1] == ended
        assert cut.columns["truncated"][-1] == (not ended)


def test_rows_that_cannot_be_gathered_are_named() -> None:
    parts, _ = experience(6, count=2)
    store = store_of(stack_rows(parts))
    last = int(np.flatnonzero(~store.is_transition)[0])
    with pytest.raises(InputError, match=f"row {last} is an episode's last and has no action"):
        store.gather(np.array([0, last]))
    with pytest.raises(InputError, match="row 999 is not among"):
        store.gather(np.array([999]))
