"""Every reader, fed damaged files: it refuses them in one sentence, or gives what the whole file gives."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions
from covshift.data.array_files import read_arrays
from covshift.data.collection import Request, collect
from covshift.data.format import read_rows
from covshift.data.import_export import import_npz
from covshift.data.manifest import parse_manifest
from covshift.data.policies import parse_policy
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation import as_logs, estimate_ratio
from covshift.estimation.ratio import RatioEstimate
from covshift.records import RunFolder
from covshift.report.figure_file import read_figure
from covshift.runs.checkpoints import read_checkpoint
from covshift.runs.launch import start_or_resume
from covshift.runs.training import run_to_end

ENV = "covshift/RandomWalk-v0"
TRIES = 60


class Reader(NamedTuple):
    """A reader, the folder that it reads, and the file in it that is damaged."""

    folder: Path
    file: str
    read: Callable[[Path], Any]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    place = tmp_path_factory.mktemp("fuzz")
    walk = collect(Request(ENV, 200, envs=2), place / "walk")
    pong = collect(Request("ALE/Pong-v5", 60, envs=1), place / "pong")
    config = make_config(ENV, "c51-corrected", "smoke", num_updates=5, evaluate_every=5)
    run = RunFolder(place / "run")
    runtime = RuntimeOptions(device="cpu", threads=1)
    run_to_end(start_or_resume(run, config, str(walk), runtime, lambda _: None), lambda *_: None)
    checkpoint = max(run.checkpoints.iterdir())
    estimate_ratio(str(walk), "uniform", ratio_discount=0.9).save(place / "estimate")

    loose = place / "loose"
    loose.mkdir()
    size = 30
    arrays = {"observations": np.arange(size, dtype=float)[:, None], "actions": np.zeros(size, int)}
    arrays |= {"rewards": np.ones(size), "truncated": np.zeros(size, bool), "mu": np.ones(size)}
    arrays["terminated"] = np.arange(size) == size - 1
    np.savez(loose / "a.npz", **arrays)  # type: ignore[arg-type]
    np.save(loose / "pi.npy", np.full((5, 2), 0.5))
    frame = pd.DataFrame({"state": [0, 1, 0, 1], "action": [0, 1, 1, 0], "reward": [0.0, 1, 0, 1]})
    frame = frame.assign(trajectory=[0, 0, 1, 1], terminated=[0, 1, 0, 1], mu=0.5)
    frame.to_csv(loose / "a.csv", index=False)
    frame.to_parquet(loose / "a.parquet")
    figures = sorted((Path(__file__).parents[2] / "results" / "small").glob("*/figure.json"))
    shutil.copy(min(figures, key=lambda path: path.stat().st_size), loose / "figure.json")
    (loose / "shard-00000.arrow").write_bytes((walk / "shard-00000.arrow").read_bytes())
    (loose / "manifest.json").write_bytes((walk / "manifest.json").read_bytes())

    def read_store(folder: Path) -> list[Any]:
        store = Store.open(folder)
        rows = np.arange(len(store))
        return [store.states(rows).tolist(), [c.tolist() for c in store.columns.values()]]

    def read_run(folder: Path) -> list[Any]:
        found = RunFolder(folder)
        return [found.config(), found.status(), found.provenance(), found.metrics()]

    def read_state(folder: Path) -> list[Any]:
        state = read_checkpoint(folder / "checkpoints").state
        return [state.values, {name: value.tolist() for name, value in state.tensors.items()}]

    def read_frame(folder: Path, name: str) -> list[Any]:
        made = pd.read_csv if name.endswith("csv") else pd.read_parquet
        try:
            table = made(folder / name)
        except Exception as error:  # What pandas reads and refuses is its own matter.
            raise InputError(str(error)) from error
        return list(as_logs(table).reward)

    def read_loose_shard(folder: Path) -> None:
        store = Store(Store.open(walk).codec, 1, 2)
        store.append_shard(folder / "shard-00000.arrow")
        store.states(np.arange(len(store)))

    def read_import(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as out:
            import_npz(folder / "a.npz", Path(out) / "made")

    run_file = f"checkpoints/{checkpoint.name}"
    return {
        "manifest": Reader(walk, "manifest.json", read_store),
        "shard": Reader(walk, "shard-00000.arrow", read_store),
        "checksums": Reader(walk, "checksums.sha256", read_store),
        "dictionary": Reader(pong, "dictionary.zstd", read_store),
        "config": Reader(run.path, "config.json", read_run),
        "status": Reader(run.path, "status.json", read_run),
        "provenance": Reader(run.path, "provenance.json", read_run),
        "metrics": Reader(run.path, "metrics.csv", read_run),
        "tensors": Reader(run.path, f"{run_file}/tensors.safetensors", read_state),
        "state": Reader(run.path, f"{run_file}/state.json", read_state),
        # Without checksums, as a stranger's files: any content is allowed, a traceback is not.
        "loose manifest": Reader(
            loose, "manifest.json", lambda f: parse_manifest(f / "manifest.json")
        ),
        "loose shard": Reader(loose, "shard-00000.arrow", read_loose_shard),
        "loose rows": Reader(
            loose, "shard-00000.arrow", lambda f: read_rows(f / "shard-00000.arrow")
        ),
        "figure": Reader(loose, "figure.json", lambda f: read_figure(f / "figure.json")),
        "npz": Reader(loose, "a.npz", read_import),
        "arrays": Reader(loose, "a.npz", lambda f: read_arrays(f / "a.npz")),
        "npy": Reader(loose, "pi.npy", lambda f: parse_policy(f"file:{f / 'pi.npy'}", 2)),
        "estimate": Reader(place / "estimate", "estimate.json", RatioEstimate.load),
        "estimate arrays": Reader(place / "estimate", "estimate.npz", RatioEstimate.load),
        "csv": Reader(loose, "a.csv", lambda f: read_frame(f, "a.csv")),
        "parquet": Reader(loose, "a.parquet", lambda f: read_frame(f, "a.parquet")),
    }


SEALED = ["manifest", "shard", "checksums", "dictionary", "config", "status", "provenance"]
SEALED += ["metrics", "tensors", "state"]
LOOSE = ["loose manifest", "loose shard", "loose rows", "figure", "npz", "arrays", "npy"]
LOOSE += ["estimate", "estimate arrays", "csv", "parquet"]


def damage(sound: bytes, rng: np.random.Generator) -> bytes:
    """A flipped bit, a cut, a repeated or foreign part, or for JSON another value somewhere."""
    data = bytearray(sound)
    kind = rng.integers(6)
    at = int(rng.integers(len(data)))
    if kind <= 1:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at : at + 8] = rng.integers(0, 256, 8, dtype=np.uint8).tobytes()
    elif kind == 4:
        data[at:at] = data[: int(rng.integers(1, 200))]
    else:
        return other_value(sound, rng)
    return bytes(data)


def other_value(sound: bytes, rng: np.random.Generator) -> bytes:
    try:
        value = json.loads(sound)
    except ValueError:
        return sound[::-1]
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = keys[int(rng.integers(len(keys)))] if len(keys) else None
        if key is None:
            break
        if not isinstance(place[key], dict | list) or rng.random() < 0.3:
            strange: list[Any] = [None, -1, 10**30, 1e400, "", "../x", [], {}, True, [[[]]], 0.5]
            place[key] = strange[int(rng.integers(len(strange)))]
            break
        place = place[key]
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", SEALED)
def test_damage_is_refused_or_makes_no_difference(
    name: str, readers: dict[str, Reader], tmp_path: Path
) -> None:
    reader = readers[name]
    folder = Path(shutil.copytree(reader.folder, tmp_path / "copy"))
    path, whole = folder / reader.file, reader.read(folder)
    sound, rng = path.read_bytes(), np.random.default_rng(0)
    for other in (folder / "checkpoints").glob("*"):
        if reader.file.startswith("checkpoints/") and other.name not in reader.file:
            shutil.rmtree(other)
    refused = 0
    for _ in range(TRIES):
        path.write_bytes(damage(sound, rng))
        try:
            assert reader.read(folder) == whole
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > TRIES / 2


@pytest.mark.parametrize("name", LOOSE)
def test_files_from_strangers_give_no_traceback(
    name: str, readers: dict[str, Reader], tmp_path: Path
) -> None:
    reader = readers[name]
    folder = Path(shutil.copytree(reader.folder, tmp_path / "copy"))
    path = folder / reader.file
    reader.read(folder)
    sound, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(TRIES):
        path.write_bytes(damage(sound, rng))
        try:
            reader.read(folder)
        except InputError as error:
            assert str(error)  # noqa: PT017
