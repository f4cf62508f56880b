"""Tables as people have them give the logs that arrays give, and a broken one is refused with the row and the fix."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from covshift.errors import InputError
from covshift.estimation import (
    Logs,
    RatioEstimate,
    as_logs,
    estimate_ratio,
    evaluate_policy,
    from_arrays,
    from_episodes,
    from_frame,
    simulate_logs,
)
from covshift.estimation.columns import as_columns
from covshift.theory.examples import episodic

PROBLEM = episodic(np.random.default_rng(3), 5, 2, single_start=False)
WORDS = np.array(["delta", "alpha", "echo", "bravo", "charlie"], dtype=object)
MOVES = np.array(["stay", "go"], dtype=object)
NAMES: dict[str, Any] = {
    "state": "place", "action": "move", "reward": "gain", "next_state": "then", "terminated": "done",
    "trajectory": "id", "propensity": "p",
}  # fmt: skip


def logged() -> Logs:
    return simulate_logs(PROBLEM.mdp, PROBLEM.mu, 60, 3, np.random.default_rng(0))


def frame(logs: Logs | None = None) -> pd.DataFrame:
    logs = logged() if logs is None else logs
    return pd.DataFrame(
        {
            "place": logs.states(), "move": logs.action, "gain": logs.reward,
            "then": logs.next_states(), "done": logs.terminated, "id": logs.trajectory, "p": logs.mu,
        }
    )  # fmt: skip


def words() -> pd.DataFrame:
    made = frame()
    return made.assign(place=WORDS[made.place], then=WORDS[made.then], move=MOVES[made.move])


def assert_same(left: Logs, right: Logs) -> None:
    for name in ("action", "mu", "reward", "terminated", "truncated", "is_initial", "trajectory"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    np.testing.assert_array_equal(left.states(), right.states())
    continues = ~left.terminated
    np.testing.assert_array_equal(left.next_states()[continues], right.next_states()[continues])


def to_csv(table: pd.DataFrame, folder: Path, name: str = "a.csv", **options: Any) -> Path:
    table.to_csv(folder / name, index=False, **options)
    return folder / name


def to_parquet_folder(table: pd.DataFrame, folder: Path) -> Path:
    """Two files, of which the second continues a trajectory of the first."""
    (folder / "parts").mkdir()
    table.iloc[:50].to_parquet(folder / "parts" / "0.parquet")
    table.iloc[50:].to_parquet(folder / "parts" / "1.parquet")
    return folder / "parts"


def to_polars(table: pd.DataFrame, _: Path) -> Any:
    """With categories, which Polars hands over as dictionaries of another kind of text than Arrow's own."""
    polars = pytest.importorskip("polars")
    made = polars.from_dict(table.to_dict("list"))
    words = [name for name in made.columns if made[name].dtype == polars.String]
    return made.with_columns(polars.col(words).cast(polars.Categorical)) if words else made


SOURCES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "csv": to_csv,
    "text of csv path": lambda table, folder: str(to_csv(table, folder)),
    "semicolons": lambda table, folder: to_csv(table, folder, sep=";"),
    "compressed": lambda table, folder: to_csv(table, folder, "a.csv.gz"),
    "tabs": lambda table, folder: to_csv(table, folder, "a.tsv", sep="\t"),
    "parquet folder": to_parquet_folder,
    "arrow": lambda table, _: pa.Table.from_pandas(table),
    "arrow, dictionaries": lambda table, _: pa.Table.from_pandas(
        table.astype({"place": "category", "id": "category"})
    ),
    "polars": to_polars,
    "polars, lazy": lambda table, folder: to_polars(table, folder).lazy(),
    "rows": lambda table, _: table.to_dict("records"),
    "mapping of lists": lambda table, _: table.to_dict("list"),
    "pandas, nullable": lambda table, _: table.convert_dtypes(),
}


@pytest.mark.parametrize("labelled", [False, True], ids=["numbers", "words"])
@pytest.mark.parametrize("source", list(SOURCES))
def test_every_kind_of_table_gives_the_logs_of_its_arrays(
    source: str, labelled: bool, tmp_path: Path
) -> None:
    logs = as_logs(SOURCES[source](words() if labelled else frame(), tmp_path), **NAMES)
    if not labelled:
        assert_same(logs, logged())
        return
    plain = logged()
    # Words are numbered in the order of the alphabet.
    np.testing.assert_array_equal(logs.states(), np.argsort(np.argsort(WORDS))[plain.states()])
    np.testing.assert_array_equal(logs.action, 1 - plain.action)
    np.testing.assert_array_equal(logs.labelled(logs.states()), WORDS[plain.states()])
    np.testing.assert_array_equal(logs[0].states, WORDS[np.asarray(plain[0].states)])
    np.testing.assert_array_equal(logs[0].actions, MOVES[np.asarray(plain[0].actions)])
    assert_same(as_logs(list(logs)), logs)


def test_several_columns_are_vectors_or_labels(tmp_path: Path) -> None:
    table = frame().assign(x=lambda t: t.place / 2, y=1.0, next_x=lambda t: t.then / 2, next_y=1.0)
    path = to_csv(table, tmp_path)
    rest = {name: column for name, column in NAMES.items() if "state" not in name}
    logs = as_logs(path, state=["x", "y"], **rest)
    np.testing.assert_array_equal(logs.states(), table[["x", "y"]].to_numpy())
    mixed = as_logs(table.assign(y="a", next_y="a"), state=["x", "y"], **rest)
    assert mixed.state_labels is not None
    assert mixed.state_labels.values == tuple((k / 2, "a") for k in range(5))


def test_ids_and_labels_may_have_any_size(tmp_path: Path) -> None:
    """As floats, 10³⁰ and 10³⁰ + 1 are one number, and so are 2⁶³ and 2⁶³ + 1."""
    for offset in (10**30, 2**63, -3):
        table = frame().assign(
            id=lambda t, k=offset: [k + i for i in t.id],
            place=lambda t, k=offset: [k + i for i in t.place],
            then=lambda t, k=offset: [k + i for i in t.then],
        )
        for source in (table, to_csv(table, tmp_path), table.to_dict("list")):
            logs = as_logs(source, **NAMES)
            assert len(logs) == len(logged())
            assert logs.state_labels is not None
            assert [int(v) for v in logs.state_labels.values] == [offset + k for k in range(5)]  # type: ignore[call-overload]
            np.testing.assert_array_equal(logs.states(), logged().states())


def test_answers_are_asked_and_given_by_label(tmp_path: Path) -> None:
    plain = estimate_ratio(logged(), PROBLEM.pi, ratio_discount=0.9)
    policy = {
        word: dict(zip(MOVES, row, strict=True))
        for word, row in zip(WORDS, PROBLEM.pi, strict=True)
    }
    logs = as_logs(words(), **NAMES)
    found = estimate_ratio(logs, policy, ratio_discount=0.9)
    np.testing.assert_allclose(found.ratio(WORDS), plain.ratio(np.arange(5)), rtol=1e-12)
    np.testing.assert_allclose(found.ratio("echo"), plain.ratio([2]), rtol=1e-12)
    again = RatioEstimate.load(found.save(tmp_path))
    np.testing.assert_array_equal(again.ratio(["echo", "alpha"]), found.ratio(["echo", "alpha"]))
    with pytest.raises(
        InputError, match="the state 'foxtrot' does not occur in the data, which have 'alpha'"
    ):
        found.ratio(["foxtrot"])
    assert found.mean_over(logs[1:3]) == pytest.approx(plain.mean_over(logged()[1:3]))
    # A function of features sees labels, too.
    phi = estimate_ratio(
        logs,
        policy,
        ratio_discount=0.9,
        features=lambda s: np.stack([s == w for w in WORDS], axis=1),
    )
    linear = estimate_ratio(logged(), PROBLEM.pi, ratio_discount=0.9, features=np.eye(5))
    np.testing.assert_allclose(phi.ratio(WORDS), linear.ratio(np.arange(5)), rtol=1e-9)


def test_actions_that_were_never_taken_are_named_by_action_labels() -> None:
    logs = as_logs(words(), action_labels=["go", "stay", "rest"], **NAMES)
    assert logs.num_actions == 3
    np.testing.assert_array_equal(logs.action, 1 - logged().action)
    value = evaluate_policy(logs, lambda s: {"go": 0.5, "rest": 0.5}, interval=None)
    assert np.isfinite(value.value)
    with pytest.raises(InputError, match="the action 'rest' does not occur in the data"):
        evaluate_policy(
            as_logs(words(), **NAMES), lambda s: {"go": 0.5, "rest": 0.5}, interval=None
        )
    signs = from_arrays([0, 1], [-1, 1], [0.0, 0.0], [1, 0], [False] * 2, action_labels=[-1, 0, 1])
    np.testing.assert_array_equal(signs.action, [0, 2])


def test_columns_of_a_text_file_have_the_type_of_all_rows(tmp_path: Path) -> None:
    """The first fraction and the first word come after more rows than a reader looks at."""
    many = 200_000
    table = pd.DataFrame(
        {"r": [0] * many + [0.5], "s": [1] * many + ["x"], "t": ["True"] * many + ["false"]}
    )
    column = as_columns(to_csv(table, tmp_path)).read(["r", "s", "t"], [])
    assert column["r"].dtype == np.float64
    assert column["r"][-1] == 0.5
    assert column["s"][-2:].tolist() == ["1", "x"]
    assert column["t"].dtype == bool


def test_without_a_trajectory_column_the_ends_part_the_rows() -> None:
    table = frame().drop(columns="id").assign(truncated=logged().truncated)
    names = {role: name for role, name in NAMES.items() if role != "trajectory"}
    assert_same(as_logs(table, **names), logged())
    endless = table.drop(columns=["done", "truncated"]).assign(id=logged().trajectory)
    logs = as_logs(
        endless[~logged().terminated[logged().starts][logged().trajectory]].iloc[:1],
        **NAMES | {"terminated": False},
    )
    assert not logs.terminated.any()


@dataclass
class Episode:
    """An episode as d3rlpy has it: as many observations as actions, and a second axis of length 1."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool


@dataclass
class Replay:
    episodes: list[Episode]


def test_d3rlpy_episodes_lose_only_the_step_whose_outcome_is_unknown() -> None:
    x = np.arange(6.0)[:, None]
    column = np.array([[0], [1], [1]])
    data = Replay(
        [Episode(x[:3], column, column * 1.0, True), Episode(x[3:], column, column + 5.0, False)]
    )
    logs = as_logs(data)
    assert logs.num_transitions == 5
    np.testing.assert_array_equal(logs.reward, [0, 1, 1, 5, 6])
    np.testing.assert_array_equal(logs.terminated, [False, False, True, False, False])
    np.testing.assert_array_equal(logs.next_states()[[0, 1, 3, 4], 0], [1, 2, 4, 5])
    # With one more observation than actions, as in covshift's own episodes, every action has an outcome.
    whole = from_episodes([Episode(x[:4], column, column * 1.0, False)], num_actions=3)
    assert (whole.num_transitions, whole.num_actions) == (3, 3)
    assert whole.next_states()[-1] == 3.0


def first_inner_step() -> int:
    """A row in the middle of a trajectory whose state, next state and the one after that differ."""
    logs = logged()
    s, t = logs.states(), logs.next_states()
    inner = ~(logs.terminated | logs.truncated)
    rows = np.arange(1, len(s) - 1)
    return int(rows[(inner[1:-1] & inner[:-2] & (s[1:-1] != t[1:-1]) & (s[:-2] != s[1:-1]))][0])


STEP = first_inner_step()


def broken(change: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    return change(frame()).reset_index(drop=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.iloc[[1, 0, *range(2, len(t))]], r"The first is row 0 .*its next_state is .*sort the rows by"),
        (lambda t: t.iloc[::-1].assign(done=False), "run backwards in time, or next_state is shifted"),
        (lambda t: t.assign(then=t.place, done=False, id=0), "next_state repeats state: shift it by one row"),
        (lambda t: t.loc[t.index.repeat(np.where((t.index == STEP), 2, 1))], "row {0} repeats row {1}: drop repeated rows"),
        (lambda t: t.drop(index=STEP), "start a new trajectory"),
    ],
    ids=["swapped", "backwards", "not shifted", "repeated", "gap"],
)  # fmt: skip
def test_rows_that_do_not_follow_one_another_are_named_with_the_fix(
    change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    with pytest.raises(InputError, match=message.format(STEP + 1, STEP)):
        as_logs(broken(change), **NAMES)


def test_rounded_vectors_follow_one_another() -> None:
    x = np.random.default_rng(0).normal(size=(6, 2))
    logs = from_arrays(x[:-1], [0] * 5, [0.0] * 5, x[1:].round(7), [False] * 5)
    assert logs.num_transitions == 5
    off = x[1:] + 1e-3 * (np.arange(5) > 0)[:, None]
    with pytest.raises(InputError, match="3 of 4 transitions do not lead"):
        from_arrays(x[:-1], [0] * 5, [0.0] * 5, off, [False] * 5)


def without(*names: str) -> pd.DataFrame:
    return frame().drop(columns=list(names))


def with_value(name: str, value: Any, row: int = 4) -> pd.DataFrame:
    made = frame().astype({name: object})
    made.loc[row, name] = value
    return made


BAD: dict[str, tuple[Any, str]] = {
    "no state": (without("place"), r"lacks place; it has move.*such as state=\['x', 'y'\] \(--state x,y on the command"),
    "no action": (without("move"), r"lacks move; .*action='…' \(--action … on"),
    "no end": (without("done"), r"lacks done; .*If no episode ever ends, say terminated=False \(--terminated never"),
    "no propensity": (without("p"), r"lacks p; .*propensity='…' \(--propensity"),
    "no rows": (frame().iloc[:0], "hold no transition"),
    "empty list": ([], "hold no transition"),
    "empty mapping": ({}, "lacks place, move, gain, done, id, p, then; it has no columns"),
    "lengths": ({**frame().to_dict("list"), "gain": [1.0]}, "the columns have different lengths: place 180"),
    "a number as column": ({**frame().to_dict("list"), "gain": 1.0}, "gain must hold one entry per row, but it is 1.0"),
    "a word as column": ({**frame().to_dict("list"), "gain": "abc"}, "gain must hold one entry per row, but it is 'abc'"),
    "missing state": (with_value("place", None), r"1 of 180 entries of place are missing, the first is in row 4"),
    "NaN state": (with_value("place", np.nan), "1 of 180 entries of place are missing"),
    "missing id": (with_value("id", None), "1 of 180 entries of trajectory are missing, the first is in row 4"),
    "unhashable id": (with_value("id", [1]), "a label of a trajectory must be hashable"),
    "unhashable state": (with_value("place", {1}), "a label of a state must be hashable"),
    "missing reward": (with_value("gain", None), "rewards are not finite numbers"),
    "infinite reward": (with_value("gain", np.inf), "rewards are not finite numbers"),
    "complex reward": (with_value("gain", 1j), "rewards must hold numbers"),
    "missing action": (with_value("move", None), "1 of 180 entries of actions are missing, the first is in row 4"),
    "fraction": (with_value("move", 0.5), "not whole numbers, the first is 0.5: actions must be discrete"),
    "continuous actions": (
        frame().assign(move=np.random.default_rng(0).normal(size=180)), "actions must be discrete"),
    "missing propensity": (with_value("p", None), r"outside \(0, 1\], the first is nan"),
    "propensity in percent": (frame().assign(p=50.0), r"outside \(0, 1\], the first is 50"),
    "propensity in words": (with_value("p", "half"), "mu must hold numbers"),
    "end in words": (with_value("done", "yes"), "of terminated are neither true nor false"),
    "wide next state": (frame().assign(then=[[1, 2]] * 180), "then|next_states"),
    "rows of different kinds": ([{"place": 1}, 3], "every row must be a mapping from names to values, but one is 3"),
    "states of different lengths": (frame().assign(place=[[1]] * 90 + [[1, 2]] * 90), "hashable|shape"),
    "decimal and words": (with_value("gain", Decimal("NaN")), "rewards are not finite numbers"),
    "no such file": ("nothing-here.csv", "there is no file nothing-here.csv"),
    "no such folder": ("nothing-here", "nothing-here"),
    "a module": (np, "data of the type module are not known"),
    "None": (None, "data of the type NoneType are not known"),
    "a list of numbers": ([1, 2, 3], r"trajectory 0 is 1, but states, actions, rewards and terminated are needed"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_bad_tables_are_answered_with_what_is_wrong_and_how_to_give_it(case: str) -> None:
    data, message = BAD[case]
    rows = isinstance(data, list) and len(data) > 0 and isinstance(data[0], dict)
    named = rows or isinstance(data, pd.DataFrame | dict)
    with pytest.raises(InputError, match=message):
        as_logs(data, **(NAMES if named else {}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read: Empty CSV file"),
        ("place,place\n1,2\n", "several columns called place"),
        ("place,move\n1\n1,2\n", "cannot be read: CSV parse error"),
    ],
)
def test_bad_text_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        from_frame(
            tmp_path / "a.csv", state="place", action="move", reward="move", terminated=False
        )
    (tmp_path / "a.parquet").write_bytes(text.encode())
    with pytest.raises(InputError, match="cannot be read"):
        from_frame(tmp_path / "a.parquet")


def test_names_of_columns_are_refused_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="state, action names columns of a table, but the data are Logs"
    ):
        as_logs(logged(), state="x", action="y")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"its name must end in .csv, .tsv or .parquet"):
        as_logs(tmp_path / "a.txt")
    with pytest.raises(InputError, match="has no columns: give a pandas"):
        from_frame(3)
