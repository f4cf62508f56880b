"""Where a run's data come from: a finished dataset, or one that is collected ahead of the learner.

See `covshift.runs.online` for the data of the agent itself.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Protocol, final

import numpy as np

from covshift.config.training import UPDATE_STEPS, TrainConfig
from covshift.data.collection import Collector, Request, shard_pool
from covshift.data.format import shard_name
from covshift.data.growing_array import GrowingArray
from covshift.data.manifest import MANIFEST, read_manifest
from covshift.data.policies import Policy, parse_policy
from covshift.data.store import Store
from covshift.envs import make_streams
from covshift.errors import InputError
from covshift.files import CHECKSUMS, sha256
from covshift.learners.deep import LearnerState
from covshift.networks import AgentNetwork
from covshift.runs.online import OnlineData

STREAM, ONLINE = "stream", "online"
"""In place of a dataset's folder: the run collects its own data, with a fixed policy or with the agent itself."""

COLLECTED = (STREAM, ONLINE)


class DataSource(Protocol):
    """A store, and the window of its rows that an update may draw from.

    Attributes:
        store: the rows.
        most_rows: no window is longer than this.
    """

    store: Store
    most_rows: int

    @property
    def behavior(self) -> Policy | None:
        """The policy that collected the rows; None if it is not known, cannot be loaded, or if there are several."""

    def begin(self, network: AgentNetwork, state: LearnerState | None) -> None:
        """Called once before any window: with the network that is trained, and with what a resumed run saved."""

    def window(self, update: int) -> tuple[int, int]:
        """Rows (lo, hi) for this update; waits until the store has them."""

    def initial_share(self) -> float:
        """The share of states that start an episode."""

    def state_dict(self) -> LearnerState:
        """All that a resumed run needs besides the rows on disk."""

    def close(self) -> None:
        """Stops collecting."""


@final
class StoredData:
    """The newest transitions of a finished dataset, the same for every update."""

    def __init__(self, folder: Path, config: TrainConfig, store: Store | None = None) -> None:
        self.store = store or Store.open(folder)
        transitions = np.flatnonzero(self.store.is_transition)
        lo = int(transitions[-min(config.data.window, len(transitions))])
        self._window = (lo, len(self.store))
        self.most_rows = len(self.store) - lo
        self._folder, self._config = folder, config

    @functools.cached_property
    def behavior(self) -> Policy | None:
        """The policy that collected the dataset, if it is the one that the configuration names."""
        policy = _behavior(self._config, self.store.num_actions)
        made_by = read_manifest(self._folder)["request"].get("policies")
        return policy if policy is not None and made_by == [policy.description()] else None

    def window(self, update: int) -> tuple[int, int]:
        """The same rows for every update."""
        return self._window

    def begin(self, network: AgentNetwork, state: LearnerState | None) -> None:
        """The rows do not depend on the network."""

    def initial_share(self) -> float:
        """Of all rows, since one policy collects them."""
        return self.store.initial_share()

    def state_dict(self) -> LearnerState:
        """Nothing: the rows follow from the configuration."""
        return LearnerState({}, {})

    def close(self) -> None:
        """Nothing is being collected."""


@final
class StreamedData:
    """The paper's replay: a window that moves by 4 transitions per update over shards as they are collected.

    The window depends on the update's number alone, and the shards on the request alone, so that a resumed run
    sees the same data. Rows behind the window stay on disk.

    Args:
        folder: where shards are written.
        config: the run's configuration.
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
            shares=data.behavior_shares,
        )
        with closing(Collector(request, folder)) as collector:
            collector.prepare()
            self.store = Store(collector.codec, collector.stack, collector.num_actions)
        self.most_rows = 2 * data.window  # An episode has at least one transition per two rows.
        self._options, self._config = data, config
        self._folder, self._count = folder, 0
        self._shards = shard_pool(request, folder, workers=1, ahead=2)
        self._transitions = GrowingArray(np.int64)
        try:
            self._require(1)
        except BaseException:
            self.close()
            raise

    @functools.cached_property
    def behavior(self) -> Policy | None:
        """The policy that collects."""
        return _behavior(self._config, self.store.num_actions)

    def window(self, update: int) -> tuple[int, int]:
        """The newest transitions, after the warm-up and 4 per update."""
        needed = self._options.warm_up + UPDATE_STEPS * update
        self._require(needed)
        rows = self._transitions.rows
        hi = int(rows[needed - 1]) + 1
        return int(rows[max(0, needed - self._options.window)]), hi

    def begin(self, network: AgentNetwork, state: LearnerState | None) -> None:
        """The rows do not depend on the network."""

    def initial_share(self) -> float:
        """Of all rows, since one policy collects them."""
        return self.store.initial_share()

    def state_dict(self) -> LearnerState:
        """Nothing: the rows follow from the configuration."""
        return LearnerState({}, {})

    def close(self) -> None:
        """Stops the collecting process."""
        self._shards.close()

    def _require(self, transitions: int) -> None:
        while len(self._transitions) < transitions:
            start = len(self.store)
            self._shards.result(self._count)
            self.store.append_shard(self._folder / shard_name(self._count))
            self._count += 1
            self._transitions.extend(start + np.flatnonzero(self.store.is_transition[start:]))


def open_source(
    data: str, config: TrainConfig, run: Path, stores: dict[str, Store] | None = None
) -> DataSource:
    """The source that `data` names: a dataset's folder, or `stream` or `online` for one beside the run's folder.

    With `stores`, a dataset is opened once, and found there by its folder from then on.
    """
    if data in COLLECTED:
        place = _collected_folder(data, run)
        return OnlineData(place, config) if data == ONLINE else StreamedData(place, config)
    source = StoredData(Path(data), config, None if stores is None else stores.get(data))
    if stores is not None:
        stores[data] = source.store
    return source


def discard_source(data: str, run: Path) -> None:
    """Removes what `open_source` made for a run that never started; shards, which take time to collect, stay."""
    if data not in COLLECTED:
        return
    place = _collected_folder(data, run)
    if (place / MANIFEST).is_file() and not [*place.glob("shard-*.arrow")]:
        shutil.rmtree(place, ignore_errors=True)


def _collected_folder(data: str, run: Path) -> Path:
    folder = run.resolve()
    return folder.with_name(f"{folder.name}-{data}")


def identify_data(data: str, config: TrainConfig) -> str:
    """The hash of a dataset's checksums, or the word stream or online.

    Raises:
        InputError: there is no dataset, or the run cannot learn from it.
    """
    if data in COLLECTED:
        return data
    folder = Path(data)
    manifest = read_manifest(folder)
    request = manifest["request"]
    if "env" not in request:
        _check_shapes(folder, manifest["observation"]["shape"], manifest["num_actions"], config)
    elif request["env"] != config.env:
        raise InputError(
            f"the dataset {folder} is of {request['env']}, but the run is of {config.env}"
        )
    there, here = request.get("options", {}), dataclasses.asdict(config.environment)
    for name in there:
        # A run may be scored on shorter episodes than those of its data.
        if name != "episode_cap" and there[name] != here.get(name):
            flag = name.replace("_", "-")
            raise InputError(
                f"the dataset {folder} has {name} {there[name]}, but the run has {here.get(name)}: give the run "
                f"--{flag} {there[name]}"
            )
    return sha256(folder / CHECKSUMS)


def dataset_request(config: TrainConfig) -> Request:
    """The dataset to collect for a run that names none."""
    data = config.data
    return Request(
        config.env,
        data.transitions,
        data.behavior_policy,
        data.data_seed,
        options=config.environment,
        shares=data.behavior_shares,
    )


def dataset_folder(config: TrainConfig, root: Path) -> Path:
    """The folder of that dataset: a readable name, with a hash where the request has unusual options."""
    request = dataset_request(config)
    usual = Request(request.env, request.transitions, seed=request.seed)
    name = f"{request.env.replace('/', '-')}-{request.transitions}-seed{request.seed}"
    if request != usual:
        text = json.dumps(request.as_dict(), sort_keys=True)
        name += f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return root / name


def _behavior(config: TrainConfig, num_actions: int) -> Policy | None:
    names = config.data.behavior_policy
    if len(names) > 1:
        return None
    try:
        return parse_policy(names[0], num_actions)
    except InputError:  # Its file or module may be gone; training does not need it.
        return None


def _check_shapes(folder: Path, shape: list[int], num_actions: int, config: TrainConfig) -> None:
    """Compares an imported dataset, which does not name its environment, with the run's environment."""
    with closing(make_streams(config.env, config.environment, 1)) as streams:
        wanted = (list(streams.observation_shape), streams.num_actions)
    if (list(shape), num_actions) != wanted:
        raise InputError(
            f"the dataset {folder} has observations of shape {list(shape)} and {num_actions} actions, but {config.env} "
            f"has {wanted[0]} and {wanted[1]}"
        )
