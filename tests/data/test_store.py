from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covshift.data.codec import FrameCodec, train_dictionary
from covshift.data.format import COLUMNS, Rows, read_rows, stack_rows, write_shard
from covshift.data.growing_array import GrowingArray
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
def test_states_and_pairs_of_states_equal_plain_lists_of_frames(seed: int) -> None:
    parts, episodes = experience(seed)
    expected = plain_states(episodes)
    store = store_of(*parts)
    store.check_valid()
    everything = np.arange(len(store))
    np.testing.assert_array_equal(store.states(everything), expected)
    np.testing.assert_array_equal(store.observations(everything), np.concatenate(episodes))
    # Successive rows of an episode, rows of two episodes, and rows that lie anywhere.
    rng = np.random.default_rng(seed)
    anywhere = rng.permutation(len(store))
    for first, second in ((everything[:-1], everything[1:]), (everything, anywhere)):
        for states, rows in zip(store.pairs(first, second), (first, second), strict=True):
            np.testing.assert_array_equal(states, [expected[row] for row in rows])
            assert states.flags.c_contiguous
            assert states.dtype == np.uint8


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_predecessors_are_the_rows_that_led_to_a_state(seed: int) -> None:
    rows = stack_rows(experience(seed)[0])
    store, column = store_of(rows), rows.columns
    ids = np.flatnonzero(store.is_state)
    assert not column["terminated"][ids].any()
    for restart in (False, True):
        before, has_none = store.predecessors(ids, restart=restart)
        for k, row in enumerate(ids):
            expected: int | None = int(row) - 1
            if column["is_initial"][row]:
                # Only with restarts, in the same stream, and after a termination.
                joined = restart and row > 0 and bool(column["terminated"][row - 1])
                joined = joined and column["stream"][row - 1] == column["stream"][row]
                expected = int(row) - 2 if joined else None
            assert has_none[k] == (expected is None)
            assert expected is None or before[k] == expected


def test_restarts_join_only_episodes_that_follow_each_other() -> None:
    """With one stream per shard, the last episode of a shard comes right before the first of the next."""
    rng = np.random.default_rng(0)
    parts = [episode(rng, number, 0)[0] for number in (0, 1, 1_000_000, 1_000_001)]
    for rows in parts:
        rows.columns["terminated"][-1], rows.columns["truncated"][-1] = True, False
    store = store_of(*parts)
    store.check_valid()
    starts = np.flatnonzero(store.columns["is_initial"])
    _, has_none = store.predecessors(starts, restart=True)
    np.testing.assert_array_equal(has_none, [True, False, True, False])


def assert_same_rows(ours: Store, theirs: Store, rows: np.ndarray, offset: int = 0) -> None:
    """That two stores agree in these rows; in the second one they start at `offset`."""
    for name in COLUMNS:
        np.testing.assert_array_equal(ours.columns[name][rows], theirs.columns[name][rows + offset])
    np.testing.assert_array_equal(ours.states(rows), theirs.states(rows + offset))


def test_shards_and_rows_in_memory_are_read_alike(tmp_path: Path) -> None:
    parts, _ = experience(3, count=9)
    in_memory = store_of(stack_rows(parts))
    first, second = stack_rows(parts[:4]), stack_rows(parts[4:6])
    write_shard(tmp_path / "a.arrow", first, CODEC)
    write_shard(tmp_path / "b.arrow", second, CODEC)
    paths = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    mixed = Store.of_shards(paths[:1], CODEC, STACK, 3)
    mixed.append_shard(paths[1])
    mixed.append(stack_rows(parts[6:8]))
    mixed.append(parts[8])
    mixed.check_valid()
    assert len(mixed) == len(in_memory)
    np.testing.assert_array_equal(mixed.is_transition, in_memory.is_transition)
    assert_same_rows(mixed, in_memory, np.arange(len(mixed)))
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
        column = whole.columns
        for row in range(len(growing)):
            followed = not (column["truncated"][row] or column["terminated"][row])
            followed = followed and not column["terminated"][row + 1]
            assert growing.is_end[row] == (bool(growing.is_state[row]) and not followed)
        assert_same_rows(growing, whole, np.arange(len(growing)))
        ids = np.flatnonzero(growing.is_transition)
        # The second row of a pair may be the one that is held back.
        for ours, theirs in zip(
            growing.pairs(ids, ids + 1), whole.pairs(ids, ids + 1), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
        if running:
            with pytest.raises(InputError, match=f"row {at - 1} is not among"):
                growing.states(np.array([at - 1]))
    assert len(early) == 0


def test_rows_that_do_not_continue_where_the_last_ended_are_refused(tmp_path: Path) -> None:
    parts, _ = experience(2)
    store = store_of(parts[0], piece(parts[1], 0, 1))
    size = len(store)
    with pytest.raises(InputError, match="episode 1 is still running: append the rest"):
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
    moved, address = 0, array.rows.__array_interface__["data"][0]
    for k in range(5000):
        array.extend([k])
        if array.rows.__array_interface__["data"][0] != address:
            moved, address = moved + k, array.rows.__array_interface__["data"][0]
    np.testing.assert_array_equal(array.rows, np.arange(5000))
    assert moved < 2 * 5000


def test_a_shard_may_be_named_several_times(tmp_path: Path) -> None:
    parts, _ = experience(4)
    write_shard(tmp_path / "a.arrow", stack_rows(parts), CODEC)
    once = Store.of_shards([tmp_path / "a.arrow"], CODEC, STACK, 3)
    thrice = Store.of_shards([tmp_path / "a.arrow"] * 3, CODEC, STACK, 3)
    assert len(thrice) == 3 * len(once)
    assert_same_rows(once, thrice, np.arange(len(once)), 2 * len(once))


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
        pair = store.pairs(np.array([0, 1]), np.array([2, 1]))
        np.testing.assert_array_equal(np.stack(pair), observations[[[0, 1], [2, 1]]])
    assert codec.encoding == ("bits" if dtype is np.bool_ else "raw")
    if dtype is np.bool_:
        assert len(codec.encode(observations[0])) == 50


@pytest.mark.parametrize("dtype", [np.bool_, np.int64])
def test_few_and_many_rows_of_plain_shards_are_the_same(dtype: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    codec = FrameCodec((3, 5), np.dtype(dtype))
    store = Store(codec, 1, 3)
    written: list[np.ndarray] = []
    for index, part in enumerate(experience(1)[0]):
        written.append((rng.random((len(part), 3, 5)) * 2).astype(dtype))
        write_shard(
            tmp_path / f"{index}.arrow",
            Rows(part.columns, [codec.encode(o) for o in written[-1]]),
            codec,
        )
        store.append_shard(tmp_path / f"{index}.arrow")
    observations = np.concatenate(written)
    for count in (0, 1, 20, 2000):
        ids = rng.integers(len(store), size=count)
        found = store.states(ids)
        np.testing.assert_array_equal(found, observations[ids])
        assert found.flags.writeable


def test_a_cut_keeps_the_asked_number_of_transitions_and_marks_the_end() -> None:
    parts, _ = experience(5)
    rows = stack_rows(parts)
    for count in range(1, rows.num_transitions + 1):
        cut = rows.cut(count)
        assert cut.num_transitions == count
        store_of(cut).check_valid()
        ended = rows.columns["terminated"][len(cut) - 1]
        assert cut.columns["terminated"][-1] == ended
        assert cut.columns["truncated"][-1] == (not ended)


def test_rows_that_do_not_exist_are_named() -> None:
    store = store_of(*experience(6, count=2)[0])
    rows = np.array([0, 999])
    for read in (store.states, store.observations, lambda ids: store.pairs(ids, ids)):
        with pytest.raises(InputError, match="row 999 is not among"):
            read(rows)
