import shutil
from pathlib import Path

import numpy as np
import pytest

from covshift.data.collection import Request, collect
from covshift.data.format import read_rows, write_shard
from covshift.data.manifest import read_manifest
from covshift.data.store import Store
from covshift.data.verification import verify
from covshift.errors import InputError
from covshift.files import write_checksums, write_json


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compressed frames, so that every kind of file is there."""
    out = tmp_path_factory.mktemp("data") / "pong"
    request = Request("ALE/Pong-v5", 900, envs=2, shard_transitions=400)
    return collect(request, out)


def test_any_single_damaged_byte_is_found(dataset: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    for path in sorted(copy.iterdir()):
        sound = path.read_bytes()
        for index in {0, len(sound) - 1, *rng.integers(0, len(sound), 25).tolist()}:
            damaged = bytearray(sound)
            damaged[index] ^= int(rng.integers(1, 256))
            path.write_bytes(bytes(damaged))
            with pytest.raises(InputError):
                list(verify(copy))
        path.write_bytes(sound)
    assert list(verify(copy))


def test_missing_and_foreign_files_are_named(dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    (copy / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"does not list: \['letter.txt'\]"):
        list(verify(copy))
    (copy / "letter.txt").unlink()
    (copy / "dictionary.zstd").unlink()
    with pytest.raises(InputError, match=r"dictionary\.zstd is missing"):
        list(verify(copy))
    with pytest.raises(InputError, match=r"has no checksums\.sha256"):
        list(verify(tmp_path))


@pytest.mark.parametrize("column", ["is_initial", "terminated", "mu", "action", "episode"])
def test_broken_invariants_are_found_although_the_checksums_match(
    dataset: Path, tmp_path: Path, column: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    path = copy / "shard-00000.arrow"
    rows = read_rows(path)
    values = rows.columns[column]
    values[5] = {"mu": 1.5, "action": 99, "episode": 10**7}.get(column, True)
    write_shard(path, rows, Store.open(dataset).codec)
    write_checksums(copy, sorted(p.name for p in copy.iterdir() if p.name != "checksums.sha256"))
    with pytest.raises(InputError, match="the rows do not form whole episodes"):
        list(verify(copy))


def test_wrong_counts_and_versions_are_found(dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    manifest = read_manifest(copy)
    names = sorted(p.name for p in copy.iterdir() if p.name != "checksums.sha256")
    write_json(copy / "manifest.json", manifest | {"totals": manifest["totals"] | {"rows": 7}})
    write_checksums(copy, names)
    with pytest.raises(InputError, match="the manifest counts"):
        list(verify(copy))
    shards = [manifest["shards"][0] | {"episodes": 7}, *manifest["shards"][1:]]
    write_json(copy / "manifest.json", manifest | {"shards": shards})
    write_checksums(copy, names)
    with pytest.raises(InputError, match=r"the manifest says .*'episodes': 7.* but the file has"):
        list(verify(copy))
    write_json(copy / "manifest.json", manifest | {"format_version": 99})
    write_checksums(copy, names)
    with pytest.raises(InputError, match="has format version 99"):
        list(verify(copy))
