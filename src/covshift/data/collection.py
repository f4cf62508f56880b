"""Collecting: run a behavior policy, and write what it saw as shards.

A shard is a pure function of the request and its index: K streams are seeded once, each runs whole
episodes until its quota. So a collection can be killed at any point and go on, and shards can be made in
parallel, with the same bytes as a result.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

import numpy as np

from covshift.config.environment import EnvOptions
from covshift.data.format import (
    COLUMNS,
    DICTIONARY,
    EPISODES_PER_SHARD,
    FORMAT_VERSION,
    MANIFEST,
    SHARD_TRANSITIONS,
    Rows,
    manifest_differences,
    read_batch,
    read_manifest,
    read_rows,
    shard_name,
    write_shard,
)
from covshift.data.frames import FrameCodec, encoding_of, train_dictionary
from covshift.data.parallel import Progress, run_jobs
from covshift.data.policies import parse_policy
from covshift.data.recording import Acted, Recorder, Runner
from covshift.envs import Streams, make_streams
from covshift.errors import InputError
from covshift.files import CHECKSUMS, PARTIAL, whole_file, write_checksums, write_json
from covshift.version import __version__

DICTIONARY_FRAMES = 4_000
_VERSIONS = "versions."


@final
@dataclass(frozen=True)
class Request:
    """What to collect; two equal requests give equal datasets.

    Args:
        env: environment id.
        transitions: how many, exactly.
        policies: behavior policies by name; each episode draws one of them.
        seed: of everything.
        envs: K, the number of streams in a shard.
        options: the environment's protocol.
        shard_transitions: quota of a shard.
    """

    env: str
    transitions: int
    policies: tuple[str, ...] = ("uniform",)
    seed: int = 0
    envs: int = 8
    options: EnvOptions = field(default_factory=EnvOptions)
    shard_transitions: int = SHARD_TRANSITIONS

    def __post_init__(self) -> None:
        for name in ("transitions", "envs", "shard_transitions"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, but it is {getattr(self, name)}")
        if self.seed < 0:
            raise InputError(f"seed must not be negative, but it is {self.seed}")
        if not self.policies:
            raise InputError("at least one policy is needed")

    @property
    def stream_quota(self) -> int:
        """Transitions after which a stream ends with its episode."""
        return -(-min(self.shard_transitions, self.transitions) // self.envs)


@final
class Collector:
    """One request and the folder it goes to."""

    def __init__(self, request: Request, out: Path) -> None:
        self.request, self.out = request, out
        streams = make_streams(request.env, request.options, 1)
        self.num_actions = streams.num_actions
        self.shape, self.dtype = streams.observation_shape, streams.observation_dtype
        streams.close()
        self.policies = [parse_policy(name, self.num_actions) for name in request.policies]

    def prepare(self) -> FrameCodec:
        """Makes the folder, or finds that it holds the same request, and the codec.

        A finished dataset may have been made with other versions of libraries; one cannot be continued with
        them, since its shards might not fit together.

        Raises:
            InputError: the folder holds something else.
        """
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out} is a file; name a folder")
        self.out.mkdir(parents=True, exist_ok=True)
        manifest = self.out / MANIFEST
        wanted = self._manifest()
        if manifest.is_file():
            differing = self._differences()
            if self.is_finished():
                differing = {k: v for k, v in differing.items() if not k.startswith(_VERSIONS)}
            if differing:
                raise InputError(
                    f"{self.out} holds a dataset of another make ({_listed(differing)}); "
                    "name another folder, or remove that one"
                )
        elif any(path.suffix != PARTIAL for path in self.out.iterdir()):
            raise InputError(f"{self.out} is not empty and holds no dataset; name another folder")
        else:
            write_json(manifest, wanted)
        dictionary = self.out / DICTIONARY
        if encoding_of(self.shape, self.dtype) == "zstd" and not dictionary.is_file():
            with whole_file(dictionary) as partial:
                partial.write_bytes(train_dictionary(self._sample_frames))
        return self.codec()

    def codec(self) -> FrameCodec:
        """The codec of this folder's observations."""
        dictionary = self.out / DICTIONARY
        return FrameCodec(
            self.shape, self.dtype, dictionary.read_bytes() if dictionary.is_file() else None
        )

    def estimated_bytes(self, codec: FrameCodec) -> int:
        """The size that the dataset will have, from a few frames."""
        frames = self._sample_frames[DICTIONARY_FRAMES // 2 :]
        array = np.frombuffer(b"".join(frames), dtype=self.dtype).reshape(-1, *self.shape)
        mean = float(np.mean([len(codec.encode(frame)) for frame in array]))
        columns = sum(kind.bit_width for kind in COLUMNS.values()) / 8 + 8
        return int(self.request.transitions * (mean + columns))

    def is_finished(self) -> bool:
        """Whether all is there already."""
        try:
            shards = read_manifest(self.out)["shards"]
        except InputError:
            return False
        names = [CHECKSUMS, *(shard["file"] for shard in shards)]
        if encoding_of(self.shape, self.dtype) == "zstd":
            names.append(DICTIONARY)
        return all((self.out / name).is_file() for name in names)

    def other_versions(self) -> str:
        """With which other versions of libraries the folder's dataset was made; empty where with none."""
        return _listed(
            {
                key.removeprefix(_VERSIONS): text
                for key, text in self._differences().items()
                if key.startswith(_VERSIONS)
            }
        )

    def make_shard(
        self, index: int, codec: FrameCodec, progress: Progress, limit: int | None = None
    ) -> int:
        """Makes a shard unless it is there, cut to `limit` transitions, and returns how many it has."""
        path = self.out / shard_name(index)
        made_before = path.is_file()
        if not made_before:
            rows = self._run(index, codec, progress)
            if limit is not None and rows.num_transitions > limit:
                rows = rows.cut(limit)
            write_shard(path, rows, codec)
        transitions = int((read_batch(path).column("action").to_numpy() >= 0).sum())
        if made_before:
            progress(transitions)
        return transitions

    def finish(self, counts: list[int], codec: FrameCodec) -> None:
        """Cuts the last shard to the number asked for, and writes manifest and checksums."""
        excess = sum(counts) - self.request.transitions
        last = self.out / shard_name(len(counts) - 1)
        if excess > 0:
            write_shard(last, read_rows(last).cut(counts[-1] - excess), codec)
        shards = []
        for index in range(len(counts)):
            batch = read_batch(self.out / shard_name(index))
            action = batch.column("action").to_numpy()
            initial = batch.column("is_initial").to_numpy(zero_copy_only=False)
            shards.append(
                {
                    "file": shard_name(index),
                    "rows": len(action),
                    "transitions": int((action >= 0).sum()),
                    "episodes": int(initial.sum()),
                }
            )
        for path in [*self.out.glob("shard-*.arrow"), *self.out.glob(f"*{PARTIAL}")]:
            if path.name not in {shard["file"] for shard in shards}:
                path.unlink()
        totals = {
            name: sum(int(shard[name]) for shard in shards)  # type: ignore[call-overload]
            for name in ("rows", "transitions", "episodes")
        }
        write_json(self.out / MANIFEST, self._manifest() | {"shards": shards, "totals": totals})
        names = [MANIFEST, *(str(shard["file"]) for shard in shards)]
        if (self.out / DICTIONARY).is_file():
            names.append(DICTIONARY)
        write_checksums(self.out, sorted(names))

    def collect(self, *, workers: int = 1, progress: Progress) -> None:
        """Makes every shard that is missing, and finishes; see the function of this name.

        A second process that collects the same waits, and then finds it there.
        """
        self.prepare()
        with _held(self.out):
            if not self.is_finished():
                self._collect(workers, progress)

    def _collect(self, workers: int, progress: Progress) -> None:
        codec = self.codec()
        counts: list[int] = []
        if workers <= 1:
            while (missing := self.request.transitions - sum(counts)) > 0:
                counts.append(self.make_shard(len(counts), codec, progress, limit=missing))
        else:
            # As many shards as can be needed, since each has at least its quota.
            most = -(-self.request.transitions // (self.request.stream_quota * self.request.envs))
            job = partial(make_shard, self.request, self.out)
            with closing(run_jobs(job, most, workers, progress)) as made:
                while sum(counts) < self.request.transitions:
                    counts.append(next(made))
        self.finish(counts, codec)

    def close(self) -> None:
        """Stops the emulators."""
        if "_streams" in vars(self):
            self._streams.close()
            del self._streams

    def _differences(self) -> dict[str, str]:
        path = self.out / MANIFEST
        try:
            found = json.loads(path.read_text(errors="replace"))
        except ValueError as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise InputError(f"{path} is no manifest: it holds {type(found).__name__}")
        return manifest_differences(found, self._manifest())

    def _manifest(self) -> dict[str, Any]:
        request = asdict(self.request)
        request["policies"] = [policy.description() for policy in self.policies]
        return {
            "format_version": FORMAT_VERSION,
            "request": request,
            "num_actions": self.num_actions,
            "observation": {
                "shape": list(self.shape),
                "dtype": self.dtype.name,
                "encoding": encoding_of(self.shape, self.dtype),
                "stack": self.stack,
            },
            "versions": _versions(),
        }

    @property
    def stack(self) -> int:
        """How many newest observations make a state: the option for games, else 1."""
        return self.request.options.frame_stack if self.request.env.startswith("ALE/") else 1

    def _steps(self, shard: int) -> Generator[Acted]:
        generators = [
            np.random.default_rng(np.random.SeedSequence(self.request.seed, spawn_key=(shard, k)))
            for k in range(self.request.envs)
        ]
        return Runner(self._streams, self.policies, generators, self.stack).steps()

    @cached_property
    def _streams(self) -> Streams:
        """Emulators take a second to make, so the sample and all shards share them."""
        return make_streams(self.request.env, self.request.options, self.request.envs)

    @cached_property
    def _sample_frames(self) -> list[bytes]:
        """Frames of episodes that no shard holds, under the same policies."""
        frames: list[bytes] = []
        with closing(self._steps(2**31)) as steps:
            while len(frames) < DICTIONARY_FRAMES:
                frames += [observation.tobytes() for observation in next(steps).arrived]
        return frames[:DICTIONARY_FRAMES]

    def _run(self, index: int, codec: FrameCodec, progress: Progress) -> Rows:
        recorder = Recorder(codec, self.request.envs, self.request.stream_quota)
        with closing(self._steps(index)) as steps:
            while running := recorder.add(next(steps)):
                progress(running)
        return recorder.rows(index * EPISODES_PER_SHARD)


def collect(request: Request, out: Path, *, workers: int = 1, progress: Progress) -> Path:
    """Collects a dataset into `out`, or goes on with one that was interrupted.

    Args:
        request: what to collect.
        out: the folder.
        workers: processes that make shards; the result does not depend on it.
        progress: called with the number of new transitions.
    """
    with closing(Collector(request, out)) as collector:
        collector.collect(workers=workers, progress=progress)
    return out


def make_shard(request: Request, out: Path, index: int, progress: Progress) -> int:
    """Makes one shard of a collection whose folder is prepared, and returns how many transitions it has."""
    with closing(Collector(request, out)) as collector:
        return collector.make_shard(index, collector.codec(), progress)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Holds a folder for this process; waits for another that does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _listed(differing: dict[str, str]) -> str:
    return "; ".join(f"{key}: {text}" for key, text in differing.items())


def _versions() -> dict[str, str]:
    versions = {"covshift": __version__}
    for package in ("ale-py", "gymnasium", "MinAtar", "numpy", "zstandard"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
