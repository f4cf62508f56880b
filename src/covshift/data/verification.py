"""Verifying a dataset: every checksum, and every invariant of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from covshift.data.format import count_shard
from covshift.data.integrity import damaged, needed_files
from covshift.data.manifest import read_manifest
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.files import CHECKSUMS, DIGEST, ordinary_file, read_checksums, sha256


def verify(folder: Path) -> Iterator[str]:
    """Checks a dataset step by step, and yields a line for each check that passed.

    Raises:
        InputError: a file or an invariant is wrong; names the first.
    """
    listed = read_checksums(folder)
    for name, expected in listed.items():
        path = folder / name
        if not path.exists():
            raise InputError(f"{path} is missing")
        if sha256(ordinary_file(path)) != expected:
            raise InputError(damaged(path))
        yield f"{name}: checksum OK"
    manifest = read_manifest(folder)
    needed = set(needed_files(manifest))
    if not needed <= set(listed):
        raise InputError(f"{CHECKSUMS} does not list {', '.join(sorted(needed - set(listed)))}")
    # A collection that was killed at its very end leaves the hashes of single files, which it removes when it runs again.
    known = {CHECKSUMS, *listed, *(name + DIGEST for name in listed)}
    unlisted = {path.name for path in folder.iterdir()} - known
    if unlisted:
        raise InputError(f"{folder} holds files that {CHECKSUMS} does not list: {sorted(unlisted)}")

    store = Store.open(folder)
    try:
        store.check_valid()
    except AssertionError as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{folder}: the rows do not form whole episodes ({first})") from error
    counts = {
        "rows": len(store),
        "transitions": int(store.is_transition.sum()),
        "episodes": int(store.columns["is_initial"].sum()),
    }
    if counts != manifest["totals"]:
        raise InputError(
            f"{folder}: the manifest counts {manifest['totals']}, but there are {counts}"
        )
    yield f"{counts['episodes']} whole episodes of {counts['transitions']} transitions"
    for shard in manifest["shards"]:
        counted = {"file": shard["file"]} | count_shard(folder / shard["file"])
        if counted != shard:
            raise InputError(f"the manifest says {shard}, but the file has {counted}")
    for row in range(len(store)):
        _check_readable(store, row)
    yield "every observation can be read"


def _check_readable(store: Store, row: int) -> None:
    try:
        size = store.observation(row).nbytes
    except InputError as error:
        raise InputError(f"the observation of row {row} cannot be read: {error}") from error
    if size != store.codec.plain_bytes:
        raise InputError(
            f"the observation of row {row} has {size} bytes, but {store.codec.plain_bytes} are needed"
        )
