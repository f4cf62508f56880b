"""Collecting: run a behavior policy, and write what it saw as shards.

A shard is a pure function of the request and its index: K streams are seeded once, each runs whole
episodes until its quota. So a collection can be killed at any point and go on, and shards can be made in
parallel, with the same bytes as a result.
"""

from __future__ import annotations

import importlib.metadata
import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any, final

import numpy as np

from covshift.config.environment import EnvOptions
from covshift.data.format import (
    CHECKSUMS,
    COLUMNS,
    DICTIONARY,
    EPISODES_PER_SHARD,
    FORMAT_VERSION,
    MANIFEST,
    Rows,
    read_batch,
    read_rows,
    shard_name,
    stack_rows,
    write_checksums,
    write_json,
    write_shard,
)
from covshift.data.frames import FrameCodec, encoding_of, train_dictionary
from covshift.data.policies import parse_policy
from covshift.data.recording import Runner, StreamWriter
from covshift.envs import Streams, make_streams
from covshift.errors import InputError
from covshift.version import __version__

SHARD_TRANSITIONS = 262_144
DICTIONARY_FRAMES = 4_000

Progress = Callable[[int], None]


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
        streams = self._make_streams()
        self.num_actions = streams.num_actions
        self.shape, self.dtype = streams.observation_shape, streams.observation_dtype
        streams.close()
        self.policies = [parse_policy(name, self.num_actions) for name in request.policies]

    def prepare(self) -> FrameCodec:
        """Makes the folder, or finds that it holds the same request, and the codec.

        Raises:
            InputError: the folder holds something else.
        """
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out} is a file; name a folder")
        self.out.mkdir(parents=True, exist_ok=True)
        manifest = self.out / MANIFEST
        wanted = self._manifest()
        if manifest.is_file():
            found = manifest.read_text(errors="replace")
            if not _same_request(found, wanted):
                raise InputError(
                    f"{self.out} holds a dataset of another make (see its {MANIFEST}); "
                    "name another folder, or remove that one"
                )
        elif any(path.suffix != ".partial" for path in self.out.iterdir()):
            raise InputError(f"{self.out} is not empty and holds no dataset; name another folder")
        else:
            write_json(manifest, wanted)
        dictionary = self.out / DICTIONARY
        if encoding_of(self.shape, self.dtype) == "zstd" and not dictionary.is_file():
            partial = dictionary.with_suffix(".partial")
            partial.write_bytes(train_dictionary(self._sample_frames))
            partial.replace(dictionary)
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
        return (self.out / CHECKSUMS).is_file()

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
        for path in [*self.out.glob("shard-*.arrow"), *self.out.glob("*.partial")]:
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
        """Makes every shard that is missing, and finishes; see the function of this name."""
        codec = self.prepare()
        if self.is_finished():
            return
        counts: list[int] = []
        if workers <= 1:
            while (missing := self.request.transitions - sum(counts)) > 0:
                counts.append(self.make_shard(len(counts), codec, progress, limit=missing))
        else:
            pool = ProcessPoolExecutor(workers, get_context("spawn"), _ignore_interrupts)
            try:
                for count in pool.map(_make_shard_in_worker, _jobs(self.request, self.out)):
                    counts.append(count)
                    progress(count)
                    if sum(counts) >= self.request.transitions:
                        break
            except BrokenProcessPool as error:
                raise InputError("a worker was killed; the same command goes on") from error
            finally:
                pool.shutdown(cancel_futures=True)
        self.finish(counts, codec)

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

    def _runner(self, streams: Streams, shard: int) -> Runner:
        generators = [
            np.random.default_rng(np.random.SeedSequence(self.request.seed, spawn_key=(shard, k)))
            for k in range(self.request.envs)
        ]
        return Runner(streams, self.policies, generators, self.stack)

    def _make_streams(self, num_streams: int = 1) -> Streams:
        return make_streams(self.request.env, self.request.options, num_streams)

    @cached_property
    def _sample_frames(self) -> list[bytes]:
        """Frames of episodes that no shard holds, under the same policies."""
        streams = self._make_streams(self.request.envs)
        runner = self._runner(streams, 2**31)
        frames: list[bytes] = []
        for step in runner.steps():
            frames += [observation.tobytes() for observation in step.arrived]
            if len(frames) >= DICTIONARY_FRAMES:
                break
        streams.close()
        return frames[:DICTIONARY_FRAMES]

    def _run(self, index: int, codec: FrameCodec, progress: Progress) -> Rows:
        streams = self._make_streams(self.request.envs)
        runner = self._runner(streams, index)
        writers = [StreamWriter(codec, stream) for stream in range(self.request.envs)]
        quota = self.request.stream_quota
        for step in runner.steps():
            running = 0
            for k, writer in enumerate(writers):
                if writer.transitions < quota or not writer.at_start:
                    writer.add(step, k)
                    running += 1
            progress(running)
            if running == 0:
                break
        streams.close()
        episodes = 0
        parts = []
        for writer in writers:
            parts.append(writer.rows(index * EPISODES_PER_SHARD + episodes))
            episodes += writer.episodes
        return stack_rows(parts)


def collect(request: Request, out: Path, *, workers: int = 1, progress: Progress) -> Path:
    """Collects a dataset into `out`, or goes on with one that was interrupted.

    Args:
        request: what to collect.
        out: the folder.
        workers: processes that make shards; the result does not depend on it.
        progress: called with the number of new transitions.
    """
    Collector(request, out).collect(workers=workers, progress=progress)
    return out


def _jobs(request: Request, out: Path) -> Iterator[tuple[Request, Path, int]]:
    """As many shards as can be needed, since each has at least its quota."""
    smallest = request.stream_quota * request.envs
    for index in range(-(-request.transitions // smallest)):
        yield request, out, index


def _ignore_interrupts() -> None:
    """Ctrl-C is for the process that started the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make_shard_in_worker(job: tuple[Request, Path, int]) -> int:
    request, out, index = job
    collector = Collector(request, out)
    return collector.make_shard(index, collector.codec(), lambda _: None)


def _same_request(found: str, wanted: dict[str, Any]) -> bool:
    try:
        manifest = json.loads(found)
    except ValueError:
        return False
    return isinstance(manifest, dict) and all(
        manifest.get(key) == json.loads(json.dumps(value)) for key, value in wanted.items()
    )


def _versions() -> dict[str, str]:
    versions = {"covshift": __version__}
    for package in ("ale-py", "gymnasium", "MinAtar", "numpy", "zstandard"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
