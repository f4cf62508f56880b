"""Where a run's rows come from: a dataset that is there, or one that is collected ahead of the learner."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Protocol, final

import numpy as np

from covshift.config.training import UPDATE_STEPS, TrainConfig
from covshift.data.collection import Collector, Request, shard_pool
from covshift.data.format import shard_name
from covshift.data.growing_array import GrowingArray
from covshift.data.manifest import read_manifest
from covshift.data.store import Store
from covshift.envs import make_streams
from covshift.errors import InputError
from covshift.files import CHECKSUMS, sha256

STREAM = "stream"
"""Stands for data that the run collects for itself."""


class DataSource(Protocol):
    """A store and the window of it that an update may draw from."""

    store: Store

    def window(self, update: int) -> tuple[int, int]:
        """Rows (lo, hi) for this update, which are in the store from now on."""

    def close(self) -> None:
        """Ends what collects."""


@final
class StoredData:
    """The newest transitions of a finished dataset, the same for every update."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.store = Store.open(folder)
        transitions = np.flatnonzero(self.store.is_transition)
        lo = int(transitions[-min(config.data.window, len(transitions))])
        self._window = (lo, len(self.store))

    def window(self, update: int) -> tuple[int, int]:
        """Always the same."""
        return self._window

    def close(self) -> None:
        """Nothing runs."""


@final
class StreamedData:
    """The paper's replay: a window that moves 4 transitions an update over shards as they are collected.

    The window is a function of the update alone, and shards of the request alone, so that a run that goes on
    sees what it would have seen. Rows behind the window stay on disk.

    Args:
        folder: where shards go.
        config: of the run.
    """

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        data = config.data
        request = Request(
            config.env,
            data.warm_up + UPDATE_STEPS * config.optimization.num_updates,
            data.behavior_policy,
            data.data_seed,
            options=config.environment,
            shard_transitions=data.stream_shard,
        )
        with closing(Collector(request, folder)) as collector:
            collector.prepare()
            self.store = Store(collector.codec, collector.stack, collector.num_actions)
        self._options = data
        self._folder, self._count = folder, 0
        self._shards = shard_pool(request, folder, workers=1, ahead=2)
        self._transitions = GrowingArray(np.int64)
        self._require(1)

    def window(self, update: int) -> tuple[int, int]:
        """The newest rows after the warm-up and 4 transitions an update."""
        needed = self._options.warm_up + UPDATE_STEPS * update
        self._require(needed)
        rows = self._transitions.rows
        hi = int(rows[needed - 1]) + 1
        return int(rows[max(0, needed - self._options.window)]), hi

    def close(self) -> None:
        """Ends the collecting process."""
        self._shards.close()

    def _require(self, transitions: int) -> None:
        while len(self._transitions) < transitions:
            start = len(self.store)
            self._shards.result(self._count)
            self.store.append_shard(self._folder / shard_name(self._count))
            self._count += 1
            self._transitions.extend(start + np.flatnonzero(self.store.is_transition[start:]))


def identify(data: str, config: TrainConfig) -> str:
    """What the data are: the hash of a dataset's checksums, or the word stream.

    Raises:
        InputError: there is no dataset, or it is of another environment.
    """
    if data == STREAM:
        return STREAM
    folder = Path(data)
    request = read_manifest(folder)["request"]
    env = request.get("env", config.env)
    if env != config.env:
        raise InputError(f"the dataset {folder} is of {env}, but the run is of {config.env}")
    there, here = request.get("options", {}), dataclasses.asdict(config.environment)
    for name in there:
        # How long episodes are is not part of how the game is seen, and a run may be scored on shorter ones.
        if name != "episode_cap" and there[name] != here.get(name):
            flag = name.replace("_", "-")
            raise InputError(
                f"the dataset {folder} has {name} {there[name]}, but the run has {here.get(name)}: give the run "
                f"--{flag} {there[name]}"
            )
    return sha256(folder / CHECKSUMS)


def check_fits(data: str, config: TrainConfig) -> None:
    """That an imported dataset, whose environment is not known, is of states and actions as the run's has them.

    Raises:
        InputError: it is not.
    """
    if data == STREAM or "env" in (manifest := read_manifest(Path(data)))["request"]:
        return
    with closing(make_streams(config.env, config.environment, 1)) as streams:
        wanted = (list(streams.observation_shape), streams.num_actions)
    found = (list(manifest["observation"]["shape"]), manifest["num_actions"])
    if found != wanted:
        raise InputError(
            f"the dataset {data} has observations of shape {found[0]} and {found[1]} actions, but {config.env} has "
            f"{wanted[0]} and {wanted[1]}"
        )


def dataset_request(config: TrainConfig) -> Request:
    """The dataset that is collected for a run without one."""
    data = config.data
    return Request(
        config.env,
        data.transitions,
        data.behavior_policy,
        data.data_seed,
        options=config.environment,
    )


def dataset_folder(config: TrainConfig, root: Path) -> Path:
    """Where it goes, or is found: a readable name, with a hash where the request is not the usual one."""
    request = dataset_request(config)
    usual = Request(request.env, request.transitions, seed=request.seed)
    name = f"{request.env.replace('/', '-')}-{request.transitions}-seed{request.seed}"
    if request != usual:
        text = json.dumps(dataclasses.asdict(request), sort_keys=True)
        name += f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return root / name
