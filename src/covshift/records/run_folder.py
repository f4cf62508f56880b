"""The plain files of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NotRequired, TypeVar, final

from pydantic import BeforeValidator
from typing_extensions import TypedDict

from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.errors import InputError
from covshift.files import PARTIAL, check_folder, sha256, write_json
from covshift.records.metrics import Row, Written, read_metrics
from covshift.schema import read_json

CONFIG, STATUS, METRICS, PROVENANCE = "config.json", "status.json", "metrics.csv", "provenance.json"
CHECKPOINTS, LOCK = "checkpoints", "lock"

State = Literal["new", "running", "interrupted", "finished", "diverged"]
T = TypeVar("T")


class Status(TypedDict):
    """How far a run is; `reason` says why it diverged."""

    status: State
    update: int
    reason: NotRequired[str]


class Seals(TypedDict):
    """Hashes of a run's files, so that damage shows; `metrics` is that of the first `metrics_size` bytes."""

    config: str
    provenance: str
    metrics: NotRequired[str]
    metrics_size: NotRequired[int]


class _StatusFile(Status):
    """The content of `status.json`; `sha256` is the hash of the rest. Runs of older versions lack both."""

    seals: NotRequired[Seals]
    sha256: NotRequired[str]


def _with_log(runtime: Any) -> Any:
    """The options of today, from those of older runs, which could only name TensorBoard."""
    if not isinstance(runtime, dict) or "tensorboard" not in runtime:
        return runtime
    others = {name: value for name, value in runtime.items() if name != "tensorboard"}
    return {**others, "log": "tensorboard" if runtime["tensorboard"] is True else "none"}


class Provenance(TypedDict):
    """What a run was made with and from.

    Attributes:
        data: folder of the dataset relative to the run, or `stream` or `online`.
        data_identity: hash of the dataset's checksums, or `stream` or `online`.
    """

    data: str
    data_identity: str
    runtime: Annotated[RuntimeOptions, BeforeValidator(_with_log)]
    threads: int
    device: str
    versions: dict[str, str]
    machine: str


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of a run.

    `config.json` defines the run, `metrics.csv` is what it measured, `status.json` how far it is,
    `provenance.json` what it was made with, and `checkpoints/` holds what a resume needs.
    """

    path: Path

    @property
    def metrics_path(self) -> Path:
        """`metrics.csv`."""
        return self.path / METRICS

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / CHECKPOINTS

    def config(self) -> TrainConfig:
        """The run's configuration.

        Raises:
            InputError: there is no run here, or its configuration is invalid.
        """
        return self._read(CONFIG, TrainConfig, finite=False)  # A bound may be infinite.

    def settings(self) -> set[str]:
        """The names of the settings that the configuration's file has; an older version knew fewer."""
        values = json.loads((self.path / CONFIG).read_text())
        branches = [value for value in values.values() if isinstance(value, dict)]
        return set(values).union(*branches)

    def status(self) -> Status:
        """How far the run is."""
        found = self._status()
        value: Status = {"status": found["status"], "update": found["update"]}
        if "reason" in found:
            value["reason"] = found["reason"]
        return value

    def provenance(self) -> Provenance:
        """What the run was made with."""
        return self._read(PROVENANCE, Provenance)

    def metrics(self) -> list[Row]:
        """The rows that were measured."""
        seals = self._status().get("seals", {})
        written = Written(seals.get("metrics_size", 0), seals.get("metrics"))
        return read_metrics(self.metrics_path, written)

    def summary(self, root: Path) -> tuple[str, ...]:
        """One line about the run: its path below `root`, what it is, how far it is, and its newest score."""
        name = str(self.path.relative_to(root))
        try:
            config, status = self.config(), self.status()
            rows = self.metrics() if self.metrics_path.is_file() else []
        except InputError as error:
            return (name, "", "", "", "unreadable", str(error))
        scores = [row["score"] for row in rows if "score" in row]
        return (
            name,
            config.env,
            config.preset,
            f"seed {config.seed}",
            f"{status['status']} {status['update']:,}/{config.optimization.num_updates:,}",
            f"score {scores[-1]:.2f}" if scores else "no score yet",
        )

    def exists(self) -> bool:
        """Whether there is a run here."""
        return (self.path / CONFIG).is_file()

    def create(self, config: TrainConfig, provenance: Provenance) -> None:
        """Makes the folder of a new run.

        Raises:
            InputError: the folder holds something else.
        """
        check_folder(self.path)
        if self.path.exists():
            # A run that was killed while its folder was made has no configuration yet.
            ours = (PROVENANCE, STATUS)
            if [
                path
                for path in self.path.iterdir()
                if path.name not in ours and path.suffix != PARTIAL
            ]:
                raise InputError(f"{self.path} exists and holds no run; name another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        runtime = dataclasses.asdict(provenance["runtime"])
        write_json(self.path / PROVENANCE, {**provenance, "runtime": runtime})
        write_json(self.path / CONFIG, dataclasses.asdict(config))
        self.write_status("new", 0)

    def discard(self) -> None:
        """Removes a run that was made and never started; a folder that holds anything else stays."""
        if self.metrics_path.exists() or self.checkpoints.exists():
            return
        for name in (CONFIG, STATUS, PROVENANCE, LOCK):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def lock(self) -> IO[bytes]:
        """Locks the run for this process until the returned file is closed, or the process ends.

        Raises:
            InputError: another process is training this run.
        """
        file = (self.path / LOCK).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise InputError(
                f"another process is training the run {self.path}; wait for it, or end it"
            ) from error
        return file

    def is_locked(self) -> bool:
        """Whether a process is training this run."""
        try:
            self.lock().close()
        except InputError:
            return True
        return False

    def write_status(
        self, status: State, update: int, reason: str = "", written: Written | None = None
    ) -> None:
        """Records how far the run is, and the hashes of its files.

        Args:
            status: what the run is doing.
            update: updates so far.
            reason: why it diverged.
            written: what `metrics.csv` holds; by default what was recorded last.
        """
        value: _StatusFile = {"status": status, "update": update, "seals": self._seals()}
        if reason:
            value["reason"] = reason
        self._write_status(value, written)

    def rewind(self, kept: Written) -> None:
        """Prepares for a resume from a checkpoint: what follows `kept` in `metrics.csv` is about to be cut off."""
        for left in self.path.glob(f"*{PARTIAL}"):
            left.unlink(missing_ok=True)
        value = self._status()
        if value.get("seals", {}).get("metrics_size", 0) > kept.size:
            self._write_status(value, kept)

    def _write_status(self, value: _StatusFile, written: Written | None) -> None:
        seals = value.get("seals", self._seals())
        if written is not None:
            seals.pop("metrics", None)
            seals["metrics_size"] = written.size
            if written.sha256 is not None:
                seals["metrics"] = written.sha256
        value["seals"] = seals
        write_json(self.path / STATUS, value | {"sha256": _seal(value)})

    def _seals(self) -> Seals:
        """The hashes that were recorded when the run was made; for a run of an older version those of now."""
        recorded = self._status().get("seals")
        if recorded is not None:
            return recorded
        return {
            "config": sha256(self.path / CONFIG),
            "provenance": sha256(self.path / PROVENANCE),
        }

    def _status(self) -> _StatusFile:
        path = self.path / STATUS
        if not path.is_file():
            return {"status": "new", "update": 0}
        value = read_json(path, _StatusFile)
        if value.pop("sha256", "") != (_seal(value) if "seals" in value else ""):
            raise InputError(
                f"{path} is damaged: it does not have its own hash; restore it from a copy, or remove it and resume the run"
            )
        return value

    def _read(self, name: str, kind: type[T], *, finite: bool = True) -> T:
        if not (self.path / name).is_file():
            raise InputError(f"{self.path} is no run: it has no {name}")
        expected = dict(self._status().get("seals", {})).get(name.partition(".")[0])
        try:
            found = sha256(self.path / name)
        except OSError as error:
            raise InputError(f"{self.path / name} cannot be read: {error.strerror}") from error
        if expected not in (None, found):
            raise InputError(
                f"{self.path / name} is damaged: its hash differs from that in {STATUS}; restore it from a copy"
            )
        return read_json(self.path / name, kind, finite=finite)


def _seal(value: _StatusFile) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def find_runs(root: Path) -> Iterator[RunFolder]:
    """Every run below a folder, by name."""
    if not root.is_dir():
        raise InputError(f"{root} is no folder")
    for path in sorted(root.rglob(CONFIG)):
        if (path.parent / PROVENANCE).is_file():
            yield RunFolder(path.parent)
