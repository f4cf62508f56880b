"""Collecting: run a behavior policy, and write what it saw as shards.

A shard is a pure function of the request and its index: K streams are seeded once, and each runs whole episodes until
it has its quota. So a collection can be killed at any point and continued, and shards can be made in parallel, always
with the same bytes as a result.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np

from covshift.config.environment import EnvOptions
from covshift.config.ranges import Count, Range, Seed, check_ranges, check_shares
from covshift.data.codec import DICTIONARY_FRAMES, FrameCodec, encoding_of, train_dictionary
from covshift.data.format import (
    COLUMNS,
    EPISODES_PER_SHARD,
    SHARD_TRANSITIONS,
    Rows,
    count_shard,
    read_rows,
    shard_name,
    write_shard,
)
from covshift.data.manifest import (
    DICTIONARY,
    MANIFEST,
    finish_dataset,
    make_manifest,
    manifest_differences,
    parse_manifest,
    read_codec,
    read_manifest,
    remove_digests,
)
from covshift.data.policies import Function, Policy, Table, parse_policy
from covshift.data.recorder import Recorder
from covshift.data.runner import Runner, Step, follow
from covshift.data.workers import JobPool, Progress, ignore_progress
from covshift.envs import Streams, make_streams
from covshift.errors import InputError
from covshift.files import (
    CHECKSUMS,
    DIGEST,
    PARTIAL,
    check_folder,
    is_whole,
    locked,
    sha256,
    whole_file,
    write_digest,
    write_json,
)
from covshift.validation import check_workers
from covshift.version import __version__

_SAMPLE = 2**31
"""Index of a shard that is never made; its seeds are those of the frames that the dictionary is trained on."""


@final
@dataclass(frozen=True)
class Request:
    """What to collect; equal requests give equal datasets.

    Args:
        env: environment id.
        transitions: exact number of transitions.
        policies: behavior policies by name; each episode picks one at random.
        shares: the share of episodes that picks each policy; if there are none, all are picked alike.
        seed: seed of all randomness.
        envs: K, the number of streams of a shard.
        options: protocol of the environment.
        shard_transitions: a shard ends when its streams have this many transitions and their episodes have ended.
    """

    env: str
    transitions: Count
    policies: tuple[str, ...] = ("uniform",)
    seed: Seed = 0
    envs: Annotated[int, Range(1, 4096)] = 8
    options: EnvOptions = field(default_factory=EnvOptions)
    shard_transitions: Count = SHARD_TRANSITIONS
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.policies:
            raise InputError("at least one policy is needed")
        check_shares(self.policies, self.shares)

    def as_dict(self) -> dict[str, Any]:
        """For manifests and hashes; what was added after the first datasets is left out where it is not used."""
        found = asdict(self)
        return found if self.shares else {key: found[key] for key in found if key != "shares"}

    @property
    def stream_quota(self) -> int:
        """Transitions after which a stream stops at the end of its episode."""
        return -(-min(self.shard_transitions, self.transitions) // self.envs)

    @property
    def most_shards(self) -> int:
        """The most shards that can be needed, since each has at least its quota."""
        return -(-self.transitions // (self.stream_quota * self.envs))


@final
class Collector:
    """A request and the folder that it is collected into.

    Args:
        request: what to collect.
        out: the folder.
        policies: the behavior policies, if not those that the request names.

    Attributes:
        policies: the behavior policies, which another shard may be made with.
        num_actions: number of actions of the environment.
        shape: shape of an observation.
        dtype: type of its values.
        stack: how many of the newest observations make a state.
    """

    def __init__(
        self, request: Request, out: Path, policies: Sequence[Policy] | None = None
    ) -> None:
        self.request, self.out = request, out
        with closing(make_streams(request.env, request.options, 1)) as streams:
            self.num_actions, self.stack = streams.num_actions, streams.frame_stack
            self.shape, self.dtype = streams.observation_shape, streams.observation_dtype
        if policies is None:
            policies = [parse_policy(name, self.num_actions) for name in request.policies]
        self.policies = list(policies)

    def prepare(self) -> None:
        """Makes the folder, with manifest and dictionary, or checks that it holds the same request.

        A finished dataset may have been made with other versions of libraries. An unfinished one cannot be
        continued with them, since its shards might not fit together.

        Raises:
            InputError: the folder holds something else.
        """
        check_folder(self.out)
        named = any(isinstance(policy, Function | Table) for policy in self.policies)
        if named and not (self.out / MANIFEST).is_file():
            # Called before the folder is made, so that what turns out to be no policy leaves none behind.
            _ = self._sample_frames
        self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out):
            self._prepare()

    def _prepare(self) -> None:
        if (self.out / MANIFEST).is_file():
            versions, others = self._differences()
            finished = self.is_finished()
            differing = others if finished else others | versions
            if differing:
                raise InputError(
                    f"{self.out} holds a dataset that was made differently ({_listed(differing)}); "
                    "name another folder, or remove that one"
                )
            if finished:
                remove_digests(self.out)
                return
        elif any(path.suffix not in (PARTIAL, DIGEST) for path in self.out.iterdir()):
            raise InputError(f"{self.out} is not empty and holds no dataset; name another folder")
        else:
            write_json(self.out / MANIFEST, self._manifest())
        dictionary = self.out / DICTIONARY
        if encoding_of(self.shape, self.dtype) == "zstd" and not is_whole(dictionary):
            with whole_file(dictionary) as partial:
                partial.write_bytes(train_dictionary(self._sample_frames))
                write_digest(dictionary, sha256(partial))

    @cached_property
    def codec(self) -> FrameCodec:
        """The codec of the observations; the folder must be prepared."""
        return read_codec(self.out, self._manifest())

    def is_finished(self) -> bool:
        """Whether the dataset is complete."""
        try:
            shards = read_manifest(self.out)["shards"]
        except InputError:
            return False
        names = [CHECKSUMS, *(shard["file"] for shard in shards)]
        if encoding_of(self.shape, self.dtype) == "zstd":
            names.append(DICTIONARY)
        return all((self.out / name).is_file() for name in names)

    def other_versions(self) -> str:
        """The versions of libraries with which the dataset was made, where they differ from those here."""
        versions, _ = self._differences()
        return _listed({key.removeprefix("versions."): text for key, text in versions.items()})

    def estimated_bytes(self) -> int:
        """The expected size of the dataset, from a few frames."""
        frames = self._sample_frames[DICTIONARY_FRAMES // 2 :]
        array = np.frombuffer(b"".join(frames), dtype=self.dtype).reshape(-1, *self.shape)
        mean = float(np.mean([len(self.codec.encode(frame)) for frame in array]))
        columns = sum(kind.bit_width for kind in COLUMNS.values()) / 8 + 8
        return int(self.request.transitions * (mean + columns))

    def collect(self, *, workers: int = 1, progress: Progress = ignore_progress) -> None:
        """Makes every shard that is missing, and finishes the dataset.

        A second process that collects the same dataset waits for the first, and then finds it finished.

        Args:
            workers: processes that make shards; the result does not depend on their number.
            progress: called with the number of new transitions.
        """
        check_workers(workers)
        self.prepare()
        with locked(self.out):
            self._prepare()  # Again, since another process may have had the folder in between.
            if self.is_finished():
                return
            counts: list[int] = []
            if workers == 1:
                while (missing := self.request.transitions - sum(counts)) > 0:
                    counts.append(self.make_shard(len(counts), progress, limit=missing))
            else:
                most = self.request.most_shards
                job = partial(_make_needed, self.request, self.out)
                pool = JobPool(job, most, workers=workers, ahead=most, progress=progress)
                with closing(pool):
                    while sum(counts) < self.request.transitions:
                        counts.append(pool.result(len(counts)))
            self._finish(counts)

    def make_shard(self, index: int, progress: Progress, limit: int | None = None) -> int:
        """Makes a shard unless it exists, or only its first `limit` transitions, and returns how many it has.

        One that is damaged is made again.
        """
        path = self.out / shard_name(index)
        if is_whole(path):
            transitions = count_shard(path)["transitions"]
            progress(transitions)
            return transitions
        rows = self._run(index, progress, limit)
        write_shard(path, rows, self.codec)
        return rows.num_transitions

    def close(self) -> None:
        """Stops the emulators."""
        if "_streams" in vars(self):
            self._streams.close()
            del self._streams

    def _finish(self, counts: list[int]) -> None:
        """Cuts the last shard to the number of transitions asked for, and writes manifest and checksums."""
        excess = sum(counts) - self.request.transitions
        names = [shard_name(index) for index in range(len(counts))]
        if excess > 0:
            last = self.out / names[-1]
            write_shard(last, read_rows(last).cut(counts[-1] - excess), self.codec)
        for path in [*self.out.glob("shard-*.arrow"), *self.out.glob(f"*{PARTIAL}")]:
            if path.name not in names:
                path.unlink()
        finish_dataset(self.out, self._manifest(), len(counts))

    def _differences(self) -> tuple[dict[str, str], dict[str, str]]:
        """In which versions, and in what else, the folder's manifest differs from this request's."""
        found = manifest_differences(parse_manifest(self.out / MANIFEST), self._manifest())
        versions = {key: text for key, text in found.items() if key.startswith("versions.")}
        return versions, {key: text for key, text in found.items() if key not in versions}

    def _manifest(self) -> dict[str, Any]:
        request = self.request.as_dict()
        request["policies"] = [policy.description() for policy in self.policies]
        manifest = make_manifest(request, self.num_actions, self.shape, self.dtype, self.stack)
        return manifest | {"versions": _versions()}

    @cached_property
    def _streams(self) -> Streams:
        """The emulators, which take a second to start, so that all shards share them."""
        return make_streams(self.request.env, self.request.options, self.request.envs)

    @cached_property
    def _sample_frames(self) -> list[bytes]:
        """Frames of episodes under the same policies that are in no shard."""
        frames: list[bytes] = []
        with closing(self._steps(_SAMPLE, self._streams, self.request.envs)) as steps:
            while len(frames) < DICTIONARY_FRAMES:
                frames += [observation.tobytes() for observation in next(steps).outcome.arrived]
        return frames[:DICTIONARY_FRAMES]

    def _run(self, index: int, progress: Progress, limit: int | None) -> Rows:
        """The rows of a shard, or the first of them with `limit` transitions, for which fewer streams may do."""
        request, count = self.request, self.request.envs
        # A policy that sees observations may round differently in a smaller batch.
        if limit is not None and not self._needs_observations:
            count = min(count, -(-limit // request.stream_quota))
        recorder = Recorder(self.codec, count, request.stream_quota, limit)
        streams: AbstractContextManager[Streams]
        if count == request.envs:
            streams = nullcontext(self._streams)
        else:
            streams = closing(make_streams(request.env, request.options, count))
        with streams as running, closing(self._steps(index, running, count)) as steps:
            while not recorder.is_complete:
                progress(recorder.add(next(steps)))
        return recorder.rows(index * EPISODES_PER_SHARD)

    @property
    def _needs_observations(self) -> bool:
        return any(policy.needs_observations for policy in self.policies)

    def _steps(self, index: int, streams: Streams, count: int) -> Generator[Step]:
        generators = [
            np.random.default_rng(np.random.SeedSequence(self.request.seed, spawn_key=(index, k)))
            for k in range(count)
        ]
        policies = [follow(policy) for policy in self.policies]
        needs = self._needs_observations
        runner = Runner(
            streams, policies, generators, needs_observations=needs, shares=self.request.shares
        )
        return runner.steps()


def collect(
    request: Request, out: Path, *, workers: int = 1, progress: Progress = ignore_progress
) -> Path:
    """Collects a dataset into `out`, or continues one that was interrupted; see `Collector.collect`."""
    with closing(Collector(request, out)) as collector:
        collector.collect(workers=workers, progress=progress)
    return out


def shard_pool(
    request: Request, out: Path, workers: int, ahead: int, progress: Progress = ignore_progress
) -> JobPool:
    """Worker processes that make the shards of a collection whose folder is prepared; see `JobPool`."""
    job = partial(_make_shard, request, out)
    return JobPool(job, request.most_shards, workers=workers, ahead=ahead, progress=progress)


def _make_shard(request: Request, out: Path, index: int, progress: Progress) -> int:
    with closing(Collector(request, out)) as collector:
        return collector.make_shard(index, progress)


def _make_needed(request: Request, out: Path, index: int, progress: Progress) -> int:
    """Makes as much of a shard as can be needed: every shard before it has at least its quota."""
    limit = request.transitions - index * request.stream_quota * request.envs
    with closing(Collector(request, out)) as collector:
        return collector.make_shard(index, progress, limit=limit)


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
