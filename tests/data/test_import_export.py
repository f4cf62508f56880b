from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from covshift.cli.main import main
from covshift.data.collection import Request, collect
from covshift.data.format import COLUMNS
from covshift.data.import_export import export_minari, import_minari, import_npz
from covshift.data.manifest import read_manifest
from covshift.data.store import Store
from covshift.data.verification import verify
from covshift.errors import InputError


def assert_same(first: Store, second: Store) -> None:
    """That two datasets have the same rows."""
    for name in COLUMNS:
        np.testing.assert_array_equal(first.columns[name], second.columns[name], err_msg=name)
    rows = np.arange(len(first))
    np.testing.assert_array_equal(first.states(rows), second.states(rows))


@pytest.mark.parametrize(
    ("env", "policies"),
    [
        ("covshift/RandomWalk-v0", ("uniform", "uniform")),
        ("MinAtar/Breakout-v1", ("uniform",)),
        ("CartPole-v1", ("uniform",)),
        ("ALE/Breakout-v5", ("uniform",)),
    ],
)
def test_a_dataset_exported_to_minari_and_imported_again_is_the_same(
    env: str, policies: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    collect(Request(env, 500, policies, envs=2), tmp_path / "a")
    name = export_minari(tmp_path / "a", "covshift/test-v0")
    import_minari(name, tmp_path / "b")
    assert list(verify(tmp_path / "b"))
    first, second = Store.open(tmp_path / "a"), Store.open(tmp_path / "b")
    assert_same(first, second)
    assert second.num_actions == first.num_actions
    assert read_manifest(tmp_path / "b")["request"] == read_manifest(tmp_path / "a")["request"]


def test_a_large_import_has_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    request = Request("covshift/RandomWalk-v0", 500, envs=1, shard_transitions=200)
    collect(request, tmp_path / "a")
    import_minari(export_minari(tmp_path / "a", "walk-v0"), tmp_path / "b", shard_transitions=100)
    assert list(verify(tmp_path / "b"))
    shards = read_manifest(tmp_path / "b")["shards"]
    assert len(shards) > 3
    assert all(100 <= shard["transitions"] < 200 for shard in shards[:-1])
    first, second = Store.open(tmp_path / "a"), Store.open(tmp_path / "b")
    assert_same(first, second)


def test_bad_minari_names_end_with_a_one_line_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    collect(Request("covshift/RandomWalk-v0", 50), tmp_path / "a")
    main(["data", "export", str(tmp_path / "a"), "--name", "walk-v0"])
    for arguments, message in (
        (
            ["export", str(tmp_path / "a"), "--name", "walk-v0"],
            "there is a Minari dataset 'walk-v0'",
        ),
        (
            ["export", str(tmp_path / "a"), "--name", "a b!"],
            "'a b!' is no name of a Minari dataset",
        ),
        (["import", "nowhere-v0", "--out", str(tmp_path / "b")], "'nowhere-v0' cannot be opened"),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(["data", *arguments])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    import_minari("walk-v0", tmp_path / "c")
    assert list(verify(tmp_path / "c"))


def test_an_import_replaces_what_a_killed_one_left_behind(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays())  # type: ignore[arg-type]
    left = tmp_path / ".a.partial"
    left.mkdir()
    (left / "shard-00007.arrow").write_bytes(b"half")
    import_npz(tmp_path / "x.npz", tmp_path / "a", shard_transitions=1)
    assert list(verify(tmp_path / "a"))
    assert not left.exists()
    assert len(read_manifest(tmp_path / "a")["shards"]) == 2
    np.testing.assert_array_equal(
        Store.open(tmp_path / "a").columns["episode"], [0, 0, 0, 1_000_000, 1_000_000]
    )


def arrays() -> dict[str, np.ndarray]:
    """Two episodes of 2 and 1 steps."""
    return {
        "observations": np.arange(5, dtype=np.float32)[:, None],
        "actions": np.array([0, 1, 0, 1, 0]),
        "rewards": np.array([9.0, 1.0, 2.0, 9.0, 3.0]),
        "terminated": np.array([False, False, True, False, False]),
        "truncated": np.array([False, False, False, False, True]),
        "mu": np.array([0.5, 0.25, 0.0, 1.0, 0.0]),
    }


def test_arrays_become_a_dataset(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays())  # type: ignore[arg-type]
    import_npz(tmp_path / "x.npz", tmp_path / "a")
    assert list(verify(tmp_path / "a"))
    store = Store.open(tmp_path / "a")
    np.testing.assert_array_equal(store.states(np.arange(5)).ravel(), [0, 1, 2, 3, 4])
    for name, expected in {
        "action": [0, 1, -1, 1, -1],
        "reward": [0, 1, 2, 0, 3],
        "mu": [0.5, 0.25, np.nan, 1.0, np.nan],
        "terminated": [False, False, True, False, False],
        "truncated": [False, False, False, False, True],
        "is_initial": [True, False, False, True, False],
        "episode": [0, 0, 0, 1, 1],
    }.items():
        np.testing.assert_array_equal(store.columns[name], expected, err_msg=name)


def test_other_byte_orders_are_converted(tmp_path: Path) -> None:
    given = arrays() | {"observations": arrays()["observations"].astype(">f4")}
    np.savez(tmp_path / "x.npz", **given)  # type: ignore[arg-type]
    import_npz(tmp_path / "x.npz", tmp_path / "a")
    np.testing.assert_array_equal(Store.open(tmp_path / "a").states(np.arange(5)).ravel(), range(5))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really a zip", b"\x93NUMPY"])
def test_files_that_are_not_npz_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read as \.npz"):
        import_npz(tmp_path / "x.npz", tmp_path / "a")


def test_the_number_of_actions_may_be_given(tmp_path: Path) -> None:
    without = {name: values for name, values in arrays().items() if name != "mu"}
    np.savez(tmp_path / "x.npz", **without)  # type: ignore[arg-type]
    import_npz(tmp_path / "x.npz", tmp_path / "a", "uniform", num_actions=4)
    assert (Store.open(tmp_path / "a").columns["mu"][[0, 1, 3]] == 0.25).all()


def test_mu_may_come_from_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without = {name: values for name, values in arrays().items() if name != "mu"}
    np.savez(tmp_path / "x.npz", **without)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="name the behavior policy"):
        import_npz(tmp_path / "x.npz", tmp_path / "a")
    main(
        [
            "data",
            "import",
            str(tmp_path / "x.npz"),
            "--out",
            str(tmp_path / "a"),
            "--policy",
            "uniform",
        ]
    )
    assert "The dataset:" in capsys.readouterr().out
    assert (Store.open(tmp_path / "a").columns["mu"][[0, 1, 3]] == 0.5).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rewards": np.array([9.0, np.nan, np.inf, 9.0, 3.0])},
            "episode 0: 2 rewards are not finite numbers",
        ),
        ({"mu": np.array([0.5, 0.0, 0.0, 1.0, 0.0])}, "episode 0: 1 actions have no probability"),
        ({"actions": np.zeros(4)}, "actions has 4 rows, but observations has 5"),
        ({"truncated": np.zeros(5, bool)}, "the last row must end an episode"),
        ({"rewards": None}, "lacks rewards"),
        ({"rewards": np.array([9.0, 1e300, 2.0, 9.0, 3.0])}, "1 rewards are not finite numbers"),
        ({"actions": np.array([0, 70_000, 0, 1, 0])}, "the first is 70000 at step 1"),
        ({"actions": np.array([-1, 1, 0, 1, 0])}, "the first is -1 at step 0"),
        ({"actions": np.array([0.5, 1, 0, 1, 0])}, "actions must be whole numbers"),
        ({"actions": np.zeros((5, 2), int)}, r"actions has shape \(5, 2\), but one axis is needed"),
    ],
)
def test_bad_arrays_are_refused(
    change: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    given = {name: values for name, values in (arrays() | change).items() if values is not None}
    np.savez(tmp_path / "x.npz", **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        import_npz(tmp_path / "x.npz", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_shards_open_with_pyarrow_pandas_and_duckdb(tmp_path: Path) -> None:
    collect(Request("MinAtar/Breakout-v1", 200, envs=2), tmp_path / "a")
    with pa.memory_map(str(tmp_path / "a" / "shard-00000.arrow")) as source:
        shard = pa.ipc.open_file(source).read_all()
        frame = shard.to_pandas()
        query = "select max(n) from (select count(*) n from shard group by episode)"
        longest = duckdb.execute(query).fetchall()[0][0]
        assert longest == frame.groupby("episode").size().max()
    assert set(frame.columns) == {*COLUMNS, "observation"}
    assert (frame["action"] >= 0).sum() == 200
    assert frame.groupby("episode")["is_initial"].sum().eq(1).all()
