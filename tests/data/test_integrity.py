"""What readers refuse: damage, files that lie elsewhere, and sizes that no dataset has."""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from gymnasium import spaces

from covshift.data import open_dataset
from covshift.data.codec import FrameCodec
from covshift.data.collection import Collector, Request, collect
from covshift.data.format import read_batch, read_rows, write_shard
from covshift.data.import_export import import_minari, import_npz
from covshift.data.manifest import read_manifest
from covshift.data.store import Store
from covshift.data.verification import verify
from covshift.errors import InputError
from covshift.estimation import RatioEstimate, as_logs, estimate_ratio
from covshift.files import whole_folder, write_checksums, write_json

REQUEST = Request("covshift/RandomWalk-v0", 300, envs=2, shard_transitions=100)
SHARD = "shard-00001.arrow"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collect(REQUEST, tmp_path_factory.mktemp("sound") / "walk")


@pytest.fixture
def dataset(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "walk"))


def sign_again(folder: Path) -> None:
    """Makes the checksums fit, as a stranger would."""
    write_checksums(folder, sorted(p.name for p in folder.iterdir() if p.suffix != ".sha256"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("column", ["reward", "action", "mu"])
def test_every_reader_sees_a_changed_value(dataset: Path, column: str) -> None:
    path = dataset / SHARD
    rows, before = read_rows(path), (dataset / "checksums.sha256").read_bytes()
    rows.columns[column][1] = {"reward": 7.0, "action": 1 - rows.columns["action"][1]}.get(
        column, 0.25
    )
    write_shard(path, rows, Store.open(dataset).codec)
    path.with_name(f"{SHARD}.sha256").unlink()
    assert (dataset / "checksums.sha256").read_bytes() == before
    for read in (Store.open, open_dataset, as_logs, lambda folder: list(verify(folder))):
        with pytest.raises(InputError, match=f"{SHARD} is damaged: its checksum differs"):
            read(dataset)


def test_damage_before_the_checksums_are_written_is_repaired(sound: Path, tmp_path: Path) -> None:
    request = Request("ALE/Pong-v5", 300, envs=1, shard_transitions=100)
    whole = collect(request, tmp_path / "whole")
    collector = Collector(request, tmp_path / "parts")
    collector.prepare()
    collector.make_shard(0, lambda _: None)
    collector.close()
    flip(tmp_path / "parts" / "dictionary.zstd", 5000)
    flip(tmp_path / "parts" / "shard-00000.arrow", -2000)
    collect(request, tmp_path / "parts")
    assert files(tmp_path / "parts") == files(whole)


def test_damage_between_writing_and_finishing_shows(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaging_write(path: Path, rows: Any, codec: Any) -> None:
        write_shard(path, rows, codec)
        flip(path, path.read_bytes().index(np.float32(1.5).tobytes()))

    arrays: dict[str, Any] = {
        "observations": np.arange(3),
        "actions": np.zeros(3, int),
        "mu": np.ones(3),
    }
    arrays |= {"rewards": np.full(3, 1.5), "terminated": np.arange(3) == 2}
    np.savez(tmp_path / "a.npz", truncated=np.zeros(3, bool), **arrays)
    monkeypatch.setattr("covshift.data.dataset_writer.write_shard", damaging_write)
    out = import_npz(tmp_path / "a.npz", tmp_path / "a")
    with pytest.raises(InputError, match="is damaged"):
        Store.open(out)


def test_hashes_that_a_kill_left_are_no_fault_and_are_removed(dataset: Path) -> None:
    (dataset / f"{SHARD}.sha256").write_text("0" * 64 + f"  {SHARD}\n")
    assert list(verify(dataset))
    collect(REQUEST, dataset)
    assert not (dataset / f"{SHARD}.sha256").exists()
    assert list(verify(dataset))


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    stale = tmp_path / ".out.0123abcd.partial"
    stale.mkdir()
    with whole_folder(tmp_path / "out") as first:
        assert not stale.exists()
        (first / "a").touch()
        with pytest.raises(InputError, match=r"another process is writing .*out; wait"):
            whole_folder(tmp_path / "out").__enter__()
        with whole_folder(tmp_path / "out.2") as other:  # Its name only begins like ours.
            assert other != first
        assert first.is_dir()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    with pytest.raises(InputError, match="exists already"), whole_folder(tmp_path / "out"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.2"]


def test_another_request_that_comes_in_between_is_refused(tmp_path: Path) -> None:
    first = Collector(REQUEST, tmp_path / "walk")
    second = Collector(Request("covshift/RandomWalk-v0", 300, seed=1), tmp_path / "walk")
    first.prepare()
    write_json(tmp_path / "walk" / "manifest.json", second._manifest())
    with pytest.raises(InputError, match="made differently"):
        first.collect()


@pytest.mark.parametrize("name", ["../walk/shard-00000.arrow", "/etc/passwd", "x", "..", ""])
def test_shards_are_files_of_the_dataset(dataset: Path, name: str) -> None:
    manifest = read_manifest(dataset)
    manifest["shards"][0]["file"] = name
    write_json(dataset / "manifest.json", manifest)
    sign_again(dataset)
    for read in (Store.open, open_dataset, as_logs, lambda folder: list(verify(folder))):
        with pytest.raises(InputError, match=r"shards\[0\].file: a shard is named like"):
            read(dataset)


def test_links_and_pipes_are_refused(dataset: Path, tmp_path: Path) -> None:
    path = dataset / SHARD
    path.rename(tmp_path / SHARD)
    path.symlink_to(tmp_path / SHARD)
    for read in (Store.open, lambda folder: list(verify(folder))):
        with pytest.raises(InputError, match="link that leads out of its folder"):
            read(dataset)
    path.unlink()
    os.mkfifo(path)
    for read in (Store.open, lambda folder: list(verify(folder))):
        with pytest.raises(InputError, match="not an ordinary file"):
            read(dataset)


def _without_column(table: pa.Table) -> pa.Table:
    return table.drop_columns(["mu"])


def _other_type(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("action")
    return table.set_column(index, "action", table["action"].cast(pa.int64()))


def _lacking(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("reward")
    values = pa.array([None, *table["reward"].to_pylist()[1:]], pa.float32())
    return table.set_column(index, "reward", values)


@pytest.mark.parametrize(
    ("change", "compression", "message"),
    [
        (_without_column, None, "its columns are"),
        (_other_type, None, "its columns are"),
        (_lacking, None, "lacks values"),
        (lambda table: table[:0], None, "it has no rows"),
        (lambda table: table, "zstd", "compressed as a whole"),
    ],
)
def test_a_shard_of_another_form_is_refused(
    sound: Path,
    tmp_path: Path,
    change: Callable[[pa.Table], pa.Table],
    compression: str | None,
    message: str,
) -> None:
    table = change(pa.Table.from_batches([read_batch(sound / SHARD)]))
    empty = pa.record_batch([pa.array([], kind) for kind in table.schema.types], table.schema.names)
    batch = (table.combine_chunks().to_batches() or [empty])[0]
    path = tmp_path / SHARD
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    with pytest.raises(InputError, match=message):
        read_batch(path)


def test_observations_of_another_size_are_refused(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    manifest["observation"]["shape"] = [manifest["observation"]["shape"][0] + 1]
    write_json(dataset / "manifest.json", manifest)
    sign_again(dataset)
    with pytest.raises(InputError, match=r"stores observations of \d+ bytes, but \d+ are needed"):
        Store.open(dataset)


def test_a_frame_is_unpacked_only_if_it_has_the_right_size() -> None:
    codec = FrameCodec((2048,), np.dtype(np.uint8), b"any words will do for a dictionary")
    bomb = zstandard.ZstdCompressor().compress(bytes(2**28))
    assert len(bomb) < 2**16
    with pytest.raises(InputError, match="unpacks to 268435456 bytes, but 2048 are needed"):
        codec.decode(bomb)
    with pytest.raises(InputError, match="cannot be unpacked"):
        codec.decode(b"nonsense")


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("num_actions",), "three", "num_actions must be a valid integer"),
        (("num_actions",), 10**400, "not valid JSON|num_actions must be"),
        (("observation", "shape"), [10**6, 10**6], "observation: an observation of shape"),
        (("observation", "shape"), [0], "observation: an observation of shape"),
        (("observation", "shape"), [-2, -3], r"observation.shape\[0\] must be greater"),
        (("observation", "dtype"), "object", "observation: dtype must be a type of numbers"),
        (("observation", "dtype"), "evil", "observation: dtype 'evil' is no type of numbers"),
        (("observation", "encoding"), "raw2", "observation: encoding 'raw2' does not fit"),
        (("observation", "stack"), 10**9, "observation.stack must be less"),
        (("request",), [], "request must be an object"),
        (("request", "policies"), None, "request.policies must be a valid array"),
        (("totals", "rows"), -1, "totals.rows must be greater"),
        (("shards",), {}, "shards must be a valid array"),
        (("surprise",), 1, "the file has the unknown key 'surprise'"),
    ],
)
def test_a_manifest_of_another_form_is_refused_with_its_key(
    dataset: Path, keys: tuple[str, ...], value: Any, message: str
) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    place = manifest
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    sign_again(dataset)
    with pytest.raises(InputError, match=rf"manifest\.json: ({message})"):
        Store.open(dataset)


def test_a_deeply_nested_manifest_is_refused(dataset: Path) -> None:
    (dataset / "manifest.json").write_text('{"request":' * 10_000 + "1" + "}" * 10_000)
    with pytest.raises(InputError, match="recursion limit exceeded"):
        Store.open(dataset)


@pytest.fixture(scope="module")
def estimated(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return estimate_ratio(str(sound), "uniform").save(tmp_path_factory.mktemp("estimate"))


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("format_version",), 9, "format_version: it has format version 9, but this version"),
        (("method",), 3, "method must be a valid string, but it is 3"),
        (("ratio_discount",), "1", "ratio_discount must be a valid number"),
        (("semantics",), "other", "semantics must be 'continuing', 'visits' or 'restart'"),
        (("function",), "evil", "function: a ratio of the kind 'evil' is not known"),
        (("words",), [], "words must be"),
        (("words", "x"), 1, "words.x must be a valid string"),
        (("diagnostics",), None, "diagnostics must be"),
        (("diagnostics", "flag"), "green", "diagnostics.flag must be 'ok', "),
        (("diagnostics", "residual"), "0", "diagnostics.residual must be a valid number"),
        (("diagnostics", "violations"), 0, "diagnostics has the unknown key 'violations'"),
        (("surprise",), 1, "the file has the unknown key 'surprise'"),
    ],
)
def test_an_estimate_of_another_form_is_refused_with_its_key(
    estimated: Path, tmp_path: Path, keys: tuple[str, ...], value: Any, message: str
) -> None:
    folder = Path(shutil.copytree(estimated, tmp_path / "estimate"))
    spec = json.loads((folder / "estimate.json").read_text())
    place = spec
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (folder / "estimate.json").write_text(json.dumps(spec))
    sign_again(folder)
    with pytest.raises(InputError, match=rf"estimate\.json: {message}"):
        RatioEstimate.load(folder)


def test_estimates_of_older_versions_are_read(estimated: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(estimated, tmp_path / "estimate"))
    spec = json.loads((folder / "estimate.json").read_text())
    del spec["words"], spec["diagnostics"]["violation"], spec["diagnostics"]["violation_error"]
    (folder / "estimate.json").write_text(json.dumps(spec))
    (folder / "checksums.sha256").unlink()
    assert np.isnan(RatioEstimate.load(folder).diagnostics.violation)
    del spec["diagnostics"]["residual"]
    (folder / "estimate.json").write_text(json.dumps(spec))
    with pytest.raises(InputError, match=r"estimate\.json: diagnostics lacks the key 'residual'"):
        RatioEstimate.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": {"stack": "four"}}, "the description of 'w-v0': observation"),
        ({"request": 3}, "the description of 'w-v0': request must be an object"),
        ({}, "episode 0 lacks the infos "),
    ],
)
def test_what_a_minari_dataset_says_of_itself_is_checked(
    sound: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    message: str,
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    manifest = read_manifest(sound)
    kept = {key: manifest[key] for key in ("num_actions", "observation", "request")} | change
    ones = np.ones(2, np.float32)
    episode = minari.data_collector.EpisodeBuffer(
        id=0,
        observations=np.zeros((3, 1), np.float32),
        actions=np.zeros(2, np.int64),
        rewards=ones,
        terminations=np.array([False, True]),
        truncations=np.zeros(2, bool),
        infos={"mu": np.append(ones, 0)},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        minari.create_dataset_from_buffers(
            "w-v0",
            buffer=[episode],
            observation_space=spaces.Box(0, 1, (1,), np.float32),
            action_space=spaces.Discrete(2),
            description=json.dumps(kept),
        )
    with pytest.raises(InputError, match=message):
        import_minari("w-v0", tmp_path / "out")
    assert not (tmp_path / "out").exists()
