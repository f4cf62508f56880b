"""Starting a run and resuming one: from a configuration and a folder to a trainer."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

import torch
from torch import nn

from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Collector
from covshift.data.policies import policy_modules
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.learners.deep import AgentLearner, AgentLoss, make_priority
from covshift.networks import NatureTorso, make_agent_network
from covshift.records import Provenance, RunFolder
from covshift.runs.checkpoints import has_checkpoint, read_checkpoint
from covshift.runs.data_sources import (
    COLLECTED,
    DataSource,
    dataset_folder,
    dataset_request,
    discard_source,
    identify_data,
    open_source,
)
from covshift.runs.measures import Evaluator
from covshift.runs.replay import Replay
from covshift.runs.training import Trainer
from covshift.version import __version__

_TORCH_THREADS = torch.get_num_threads()
"""What torch takes by itself: one per core, or OMP_NUM_THREADS."""


def ensure_dataset(
    config: TrainConfig, root: Path, collecting: Callable[[Collector, Path], None]
) -> Path:
    """The scale's dataset under `root`; `collecting` is called to collect it if it is missing."""
    folder = dataset_folder(config, root)
    with contextlib.closing(Collector(dataset_request(config), folder)) as collector:
        collector.prepare()
        if not collector.is_finished():
            collecting(collector, folder)
    return folder


def start_or_resume(
    folder: RunFolder,
    config: TrainConfig,
    data: str,
    runtime: RuntimeOptions,
    say: Callable[[str], None],
) -> Trainer:
    """A new run, or the same one from where it was interrupted; see `create_run` and `resume_run`."""
    if create_run(folder, config, data, runtime):
        try:
            return _build(folder, config, data, runtime, say)
        except BaseException:
            discard_source(data, folder.path)
            folder.discard()  # So that another start, perhaps with other settings, finds no run here.
            raise
    return resume_run(folder, runtime, say, policy_modules(config.data.behavior_policy))


def create_run(folder: RunFolder, config: TrainConfig, data: str, runtime: RuntimeOptions) -> bool:
    """Makes the folder of a run, unless it holds this run already; returns whether the run is new.

    Args:
        folder: where the run is to be.
        config: what defines it.
        data: a dataset's folder, or `stream` or `online`.
        runtime: how it is computed.

    Raises:
        InputError: the folder holds another run, or the data do not fit.
    """
    if folder.exists():
        check_same(folder, config)
        if identify_data(data, config) != folder.provenance()["data_identity"]:
            raise InputError(
                f"{folder.path} was started with other data than {data}; name another folder, or those data"
            )
        return False
    pick_device(runtime.device)
    identity = identify_data(data, config)
    # Relative to the run, so that both can be moved together and no path of a machine is written.
    if data not in COLLECTED:
        data = os.path.relpath(Path(data).resolve(), folder.path.resolve())
    folder.create(config, _provenance(runtime, data, identity))
    return True


def resume_run(
    folder: RunFolder,
    runtime: RuntimeOptions | None,
    say: Callable[[str], None],
    trusted_modules: Collection[str] = (),
    stores: dict[str, Store] | None = None,
) -> Trainer:
    """A run from its newest whole checkpoint, or from its start if it has none.

    Args:
        folder: holds the run.
        runtime: how it is computed from now on; None as before.
        say: called with each message for the user.
        trusted_modules: modules that the run's policies may import. A run folder may come from anywhere, so that
            what it names is not imported by itself.
        stores: datasets that are open, by folder; runs in one process share them.

    Raises:
        InputError: it is finished, has diverged, its data have changed, or it would import another module.
    """
    config, status, provenance = folder.config(), folder.status(), folder.provenance()
    for module in policy_modules(config.data.behavior_policy):
        if module not in trusted_modules:
            raise InputError(
                f"{folder.path} would import the module '{module}' for its behavior policy; if you trust it, add "
                f"--policy-module {module}"
            )
    if status["status"] == "finished":
        raise InputError(f"{folder.path} is finished after {status['update']} updates")
    if status["status"] == "diverged":
        raise InputError(
            f"{folder.path} diverged after {status['update']} updates: {status['reason']}"
        )
    runtime = provenance["runtime"] if runtime is None else runtime
    now = _provenance(runtime, provenance["data"], provenance["data_identity"])
    changed = [key for key in ("versions", "threads") if dict(now)[key] != dict(provenance)[key]]
    if changed:
        say(f"{' and '.join(changed)} changed since the run started: results may differ slightly")
    data = provenance["data"]
    if data not in COLLECTED:
        data = os.path.normpath(folder.path.resolve() / data)
    if identify_data(data, config) != provenance["data_identity"]:
        raise InputError(f"the dataset {data} is not the one that the run began with")
    return _build(folder, config, data, runtime, say, stores)


def _build(
    folder: RunFolder,
    config: TrainConfig,
    data: str,
    runtime: RuntimeOptions,
    say: Callable[[str], None],
    stores: dict[str, Store] | None = None,
) -> Trainer:
    with contextlib.ExitStack() as opened:
        lock = opened.enter_context(folder.lock())
        source = opened.enter_context(
            contextlib.closing(open_source(data, config, folder.path, stores))
        )
        trainer = _wire(folder, config, source, runtime, say, lock)
        opened.pop_all()  # The trainer closes them from now on.
    return trainer


def _wire(
    folder: RunFolder,
    config: TrainConfig,
    source: DataSource,
    runtime: RuntimeOptions,
    say: Callable[[str], None],
    lock: IO[bytes],
) -> Trainer:
    """Wires a run together; read it as the experiment."""
    network = make_agent_network(config, source.store.state_shape, source.store.num_actions)
    torch.set_num_threads(count_threads(network.torso, runtime))
    priority = make_priority(config.replay)
    loss = AgentLoss(config, network, priority, pick_device(runtime.device))
    learner = AgentLearner(loss)
    checkpoint = None
    if has_checkpoint(folder.checkpoints):
        checkpoint = read_checkpoint(folder.checkpoints)
        for text in checkpoint.damaged:
            say(f"damaged and passed over: {text}")
        say(f"resuming from update {checkpoint.state.values['update']:,}")
    source.begin(learner.network, None if checkpoint is None else checkpoint.state)
    replay = Replay(config, source, priority)
    evaluator = Evaluator(config, learner, source)
    trainer = Trainer(config, folder, lock, learner, replay, evaluator, checkpoint)
    if runtime.compile:
        learner.network.torso.compile()
        learner.target.torso.compile()
    return trainer


def count_threads(torso: nn.Module, runtime: RuntimeOptions) -> int:
    """How many threads torch takes: as many as were asked for, or else one, and one per core for the Nature convolutions.

    A small network is little faster with more. With more, each step waits for the slowest thread, which on a busy machine has
    no core (`benchmarks/threads.py`).
    """
    usual = _TORCH_THREADS if isinstance(torso, NatureTorso) else 1
    return runtime.threads or usual


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # Some devices, such as meta, hold no values.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise InputError(f"the device '{name}' cannot be used: {reason}") from error
    return device


def check_same(folder: RunFolder, config: TrainConfig, unused: Collection[str] = ()) -> None:
    """Raises InputError if the run of a folder has other settings.

    Args:
        folder: of the run.
        config: the wanted settings; those that an older version of the folder does not have are not compared.
        unused: settings that may differ.
    """
    there, here = folder.config().leaves(), config.leaves()
    compared = folder.settings() & set(here) - set(unused)
    differing = [name for name in compared if there[name] != here[name]]
    if differing:
        name = min(differing)
        raise InputError(
            f"{folder.path} holds another run: {name} is {there[name]} there, {here[name]} here; "
            "name another folder"
        )


def _provenance(runtime: RuntimeOptions, data: str, identity: str) -> Provenance:
    packages = ("torch", "numpy", "gymnasium", "ale-py", "MinAtar")
    versions = {"covshift": __version__, "python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "data": data,
        "data_identity": identity,
        "runtime": runtime,
        "threads": runtime.threads or _TORCH_THREADS,
        "device": str(pick_device(runtime.device)),
        "versions": versions,
        "machine": platform.machine(),
    }
