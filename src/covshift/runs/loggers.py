"""Rows of metrics for tools that watch runs: TensorBoard and Weights & Biases, both extras."""

from __future__ import annotations

import importlib
import os
from typing import Any, Protocol, final

from covshift.config.training import TrainConfig
from covshift.extras import require
from covshift.records import Row, RunFolder


class Logger(Protocol):
    """Takes the rows of a run's metrics."""

    def write(self, row: Row) -> None:
        """Takes in a row."""

    def close(self) -> None:
        """Finishes what was begun."""


def make_logger(name: str, folder: RunFolder, config: TrainConfig, update: int) -> Logger | None:
    """The logger of this name; None for `none`.

    Args:
        name: none | tensorboard | wandb.
        folder: the run, into whose folder is written.
        config: what defines the run.
        update: number of updates so far.

    Raises:
        InputError: its extra is not installed.
    """
    if name == "none":
        return None
    require(name)
    return (
        TensorBoard(folder, update) if name == "tensorboard" else WeightsAndBiases(folder, config)
    )


@final
class TensorBoard:
    """Rows as events in `tensorboard/`; events after the checkpoint are hidden."""

    def __init__(self, folder: RunFolder, update: int) -> None:
        writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(str(folder.path / "tensorboard"), purge_step=update + 1)

    def write(self, row: Row) -> None:
        """One scalar for each number."""
        for name, value in _numbers(row).items():
            self._writer.add_scalar(name, value, int(row["update"]))
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


@final
class WeightsAndBiases:
    """Rows as a run in `wandb/`, offline unless WANDB_MODE says otherwise; `wandb sync` uploads it later."""

    def __init__(self, folder: RunFolder, config: TrainConfig) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._run = wandb.init(
            project="covshift",
            name=folder.path.resolve().name,
            dir=str(folder.path),
            config=config.leaves(),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(console="off", silent=True),
        )

    def write(self, row: Row) -> None:
        """One value for each number."""
        self._run.log(_numbers(row), step=int(row["update"]))

    def close(self) -> None:
        """Ends the run; a process of wandb writes the rest to disk a moment later."""
        self._run.finish()


def _numbers(row: Row) -> dict[str, float]:
    return {name: value for name, value in row.items() if isinstance(value, (int, float))}
