"""Starting a run, and going on with one."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Collector
from covshift.errors import InputError
from covshift.records import RunFolder
from covshift.runs.checkpoints import Checkpoint, has_checkpoint, read_checkpoint
from covshift.runs.data_sources import (
    STREAM,
    DataSource,
    StoredData,
    StreamedData,
    check_fits,
    dataset_folder,
    dataset_request,
    identify,
)
from covshift.runs.training import Trainer
from covshift.version import __version__

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt."""

Say = Callable[[str], None]


def ensure_dataset(
    config: TrainConfig, root: Path, collecting: Callable[[Collector, Path], None]
) -> Path:
    """The scale's dataset under `root`, collected by `collecting` unless it is there."""
    folder = dataset_folder(config, root)
    with contextlib.closing(Collector(dataset_request(config), folder)) as collector:
        collector.prepare()
        if not collector.is_finished():
            collecting(collector, folder)
    return folder


def start_or_resume(
    folder: RunFolder, config: TrainConfig, data: str, runtime: RuntimeOptions, say: Say
) -> Trainer:
    """A new run, or the same one where it was interrupted; see `prepare` and `resume_run`."""
    prepare(folder, config, data, runtime)
    return resume_run(folder, runtime, say)


def prepare(folder: RunFolder, config: TrainConfig, data: str, runtime: RuntimeOptions) -> None:
    """Makes the folder of a run, unless it is there.

    Args:
        folder: of the run.
        config: its definition.
        data: a dataset's folder, or `stream`.
        runtime: how it is computed.

    Raises:
        InputError: the folder holds another run, or the data do not fit.
    """
    if folder.exists():
        _check_same(folder, config)
        began = folder.provenance()["data_identity"]
        if identify(data, config) != began:
            raise InputError(
                f"{folder.path} was begun with other data than {data}; name another folder, or those data"
            )
        return
    pick_device(runtime.device)
    identity = identify(data, config)
    check_fits(data, config)
    # From the run's folder, so that both can be moved together and no path of a machine is written.
    if data != STREAM:
        data = os.path.relpath(Path(data).resolve(), folder.path.resolve())
    folder.create(config, _provenance(runtime, data, identity))


def resume_run(folder: RunFolder, runtime: RuntimeOptions | None, say: Say) -> Trainer:
    """A run from its newest whole checkpoint.

    Raises:
        InputError: it is finished, has diverged, or its data are not what they were.
    """
    config, status, provenance = folder.config(), folder.status(), folder.provenance()
    if status["status"] == "finished":
        raise InputError(f"{folder.path} is finished after {status['update']} updates")
    if status["status"] == "diverged":
        raise InputError(
            f"{folder.path} diverged after {status['update']} updates: {status['reason']}"
        )
    said = provenance["runtime"]
    runtime = RuntimeOptions(**said) if runtime is None else runtime
    now = _provenance(runtime, provenance["data"], provenance["data_identity"])
    changed = [key for key in ("versions", "threads") if now[key] != provenance[key]]
    if changed:
        say(
            f"{' and '.join(changed)} are not those of the run's start: it will not be exactly the same"
        )
    data = provenance["data"]
    if data != STREAM:
        data = os.path.normpath(folder.path.resolve() / data)
    if identify(data, config) != provenance["data_identity"]:
        raise InputError(f"the dataset {data} is not the one that the run began with")
    lock = folder.lock()
    feed = _open_feed(folder, config, data)
    if not has_checkpoint(folder.checkpoints):
        return _trainer(folder, feed, runtime, lock)
    checkpoint = read_checkpoint(folder.checkpoints)
    for text in checkpoint.damaged:
        say(f"damaged and passed over: {text}")
    say(f"going on from update {checkpoint.state['update']:,}")
    return _trainer(folder, feed, runtime, lock, checkpoint)


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the device '{name}' cannot be used: {reason}") from error
    return device


def _trainer(
    folder: RunFolder,
    feed: DataSource,
    runtime: RuntimeOptions,
    lock: IO[bytes],
    checkpoint: Checkpoint | None = None,
) -> Trainer:
    if runtime.threads:
        torch.set_num_threads(runtime.threads)
    _keep_freed_memory()
    trainer = Trainer(folder, feed, pick_device(runtime.device), lock, checkpoint)
    if runtime.compile:
        for network in (trainer.learner.network, trainer.learner.target):
            network.torso.compile()
    return trainer


def _keep_freed_memory() -> None:
    """Asks glibc not to hand memory back between updates.

    Activations and gradients of an update are megabytes that are freed and taken again; without this their
    pages are faulted in anew each time.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**30)


def _open_feed(folder: RunFolder, config: TrainConfig, data: str) -> DataSource:
    if data == STREAM:
        place = folder.path.resolve()
        return StreamedData(place.with_name(f"{place.name}-stream"), config)
    return StoredData(Path(data), config)


def _check_same(folder: RunFolder, config: TrainConfig) -> None:
    there, here = folder.config().leaves(), config.leaves()
    differing = [name for name in here if there.get(name) != here[name]]
    if differing:
        name = differing[0]
        raise InputError(
            f"{folder.path} holds another run: {name} is {there.get(name)} there, {here[name]} here; "
            "name another folder"
        )


def _provenance(runtime: RuntimeOptions, data: str, identity: str) -> dict[str, Any]:
    packages = ("torch", "numpy", "gymnasium", "ale-py", "MinAtar")
    versions = {"covshift": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "data": data,
        "data_identity": identity,
        "runtime": dataclasses.asdict(runtime),
        "threads": runtime.threads or torch.get_num_threads(),
        "device": str(pick_device(runtime.device)),
        "versions": versions,
        "machine": platform.machine(),
    }
