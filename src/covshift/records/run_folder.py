"""The plain files of a run."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from covshift.config.training import TrainConfig
from covshift.errors import InputError
from covshift.files import PARTIAL, write_json
from covshift.records.metrics import Row, read_metrics

CONFIG, STATUS, METRICS, PROVENANCE = "config.json", "status.json", "metrics.csv", "provenance.json"
CHECKPOINTS, LOCK = "checkpoints", "lock"


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of a run.

    `config.json` defines the run, `metrics.csv` is what it measured, `status.json` where it stands (running,
    interrupted, finished or diverged), `provenance.json` what it was made with and of, `checkpoints/` what a
    resume needs.
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
            InputError: there is no run here, or its configuration is not one.
        """
        values = self._read(CONFIG)
        try:
            return TrainConfig.from_json(values)
        except (InputError, TypeError, AttributeError) as error:
            raise InputError(f"{self.path / CONFIG} is no configuration: {error}") from error

    def status(self) -> dict[str, Any]:
        """`status`, `update`, and `reason` where there is one."""
        return (
            self._read(STATUS) if (self.path / STATUS).is_file() else {"status": "new", "update": 0}
        )

    def provenance(self) -> dict[str, Any]:
        """What the run was made with."""
        values = self._read(PROVENANCE)
        missing = {"data", "data_identity", "runtime", "threads", "versions"} - set(values)
        if missing:
            raise InputError(f"{self.path / PROVENANCE} lacks {', '.join(sorted(missing))}")
        return values

    def metrics(self) -> list[Row]:
        """The rows that were measured."""
        return read_metrics(self.metrics_path)

    def summary(self, place: Path) -> tuple[str, ...]:
        """A line about the run: where under `place`, what, how far, and its newest score."""
        try:
            config, status = self.config(), self.status()
        except InputError as error:
            return (str(self.path.relative_to(place)), "", "", "", "unreadable", str(error))
        rows = self.metrics() if self.metrics_path.is_file() else []
        scores = [row["score"] for row in rows if "score" in row]
        return (
            str(self.path.relative_to(place)),
            config.env,
            config.preset,
            f"seed {config.seed}",
            f"{status['status']} {status['update']:,}/{config.optimization.num_updates:,}",
            f"score {scores[-1]:.2f}" if scores else "no score yet",
        )

    def exists(self) -> bool:
        """Whether there is a run here."""
        return (self.path / CONFIG).is_file()

    def create(self, config: TrainConfig, provenance: dict[str, Any]) -> None:
        """Makes the folder of a new run.

        Raises:
            InputError: the folder holds something else.
        """
        if self.path.exists():
            # A run that was killed while its folder was made has its provenance alone.
            inside = [] if not self.path.is_dir() else [*self.path.iterdir()]
            others = [p for p in inside if p.name != PROVENANCE and p.suffix != PARTIAL]
            if not self.path.is_dir() or others:
                raise InputError(f"{self.path} is there and holds no run; name another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / PROVENANCE, provenance)
        write_json(self.path / CONFIG, config.to_json())

    def lock(self) -> IO[bytes]:
        """Holds the run for this process until what is returned is closed, or the process ends.

        Raises:
            InputError: another process holds it.
        """
        file = (self.path / LOCK).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise InputError(
                f"another process is at the run {self.path}; wait for it, or end it"
            ) from error
        return file

    def is_held(self) -> bool:
        """Whether a process is at the run."""
        try:
            self.lock().close()
        except InputError:
            return True
        return False

    def write_status(self, status: str, update: int, reason: str = "") -> None:
        """Says where the run stands."""
        write_json(
            self.path / STATUS,
            {"status": status, "update": update} | ({"reason": reason} if reason else {}),
        )

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.is_file():
            raise InputError(f"{self.path} is no run: it has no {name}")
        try:
            values = json.loads(path.read_text())
        except ValueError as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise InputError(f"{path} holds {type(values).__name__}, but an object is needed")
        return values


def find_runs(place: Path) -> Iterator[RunFolder]:
    """Every run under a folder, by name."""
    if not place.is_dir():
        raise InputError(f"{place} is no folder")
    for path in sorted(place.rglob(CONFIG)):
        if (path.parent / PROVENANCE).is_file():
            yield RunFolder(path.parent)
