"""Verifying a dataset: every checksum, and every invariant of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zstandard import ZstdError

from covshift.data.format import count_shard
from covshift.data.manifest import MANIFEST, read_manifest
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.files import CHECKSUMS, sha256


def verify(folder: Path) -> Iterator[str]:
    """Checks a dataset step by step, and yields a line for each check that passed.

    Raises:
        InputError: a file or an invariant is wrong; names the first.
    """
    listed = _read_checksums(folder)
    for name, expected in listed.items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path} is missing")
        if sha256(path) != expected:
            raise InputError(f"{path} is damaged: its checksum differs from that in {CHECKSUMS}")
        yield f"{name}: checksum OK"
    manifest = read_manifest(folder)
    needed = {MANIFEST, *(shard["file"] for shard in manifest["shards"])}
    if not needed <= set(listed):
        raise InputError(f"{CHECKSUMS} does not list {', '.join(sorted(needed - set(listed)))}")
    unlisted = {path.name for path in folder.iterdir()} - set(listed) - {CHECKSUMS}
    if unlisted:
        raise InputError(f"{folder} holds files that {CHECKSUMS} does not list: {sorted(unlisted)}")

    store = Store.open(folder)
    try:
        store.check_valid()
    except AssertionError as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "see check_valid"
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
    except (ValueError, ZstdError) as error:
        raise InputError(f"the observation of row {row} cannot be read: {error}") from error
    if size != store.codec.plain_bytes:
        raise InputError(
            f"the observation of row {row} has {size} bytes, but {store.codec.plain_bytes} are needed"
        )


def _read_checksums(folder: Path) -> dict[str, str]:
    path = folder / CHECKSUMS
    if not path.is_file():
        raise InputError(f"{folder} has no {CHECKSUMS}: it is not a dataset, or is not finished")
    listed = {}
    for line in path.read_text(errors="replace").removesuffix("\n").split("\n"):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name or "/" in name:
            raise InputError(f"{path} is damaged: '{line[:80]}'")
        listed[name] = digest
    return listed
