"""The training loop."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple, final

from covshift.config.training import TrainConfig
from covshift.learners.deep import AgentLearner, Diverged, LearnerState, UpdateReport
from covshift.records import NOTHING, MetricsFile, Row, RunFolder, Written
from covshift.runs.checkpoints import Checkpoint, write_checkpoint
from covshift.runs.loggers import make_logger
from covshift.runs.measures import Evaluator, MeanReports
from covshift.runs.replay import Draw, Replay
from covshift.runs.signals import stop_requests

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt."""


class Tick(NamedTuple):
    """An update was done.

    Attributes:
        update: number of updates so far.
        row: the row of metrics that was written, if one was due.
    """

    update: int
    row: Row | None


@final
class Trainer:
    """A run in progress.

    Args:
        config: what is learned.
        folder: where metrics, status and checkpoints go.
        lock: the folder's lock, held until `close`.
        learner: makes the updates.
        replay: draws their batches.
        evaluator: plays the policy.
        checkpoint: where to continue from; None starts the run.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        lock: IO[bytes],
        learner: AgentLearner,
        replay: Replay,
        evaluator: Evaluator,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.config, self.folder, self._lock = config, folder, lock
        self.learner, self.replay, self.evaluator = learner, replay, evaluator
        self._reports = MeanReports(learner.device)
        kept = NOTHING
        if checkpoint is not None:
            state = checkpoint.state
            learner.load_state_dict(state)
            replay.load_state_dict(state, learner.num_updates)
            self._reports.load_state_dict(state.values)
            kept = Written(state.values["metrics_size"], state.values.get("metrics_sha256"))
        folder.rewind(kept)
        self.metrics = MetricsFile(folder.metrics_path, kept)

    @property
    def update(self) -> int:
        """Number of updates so far."""
        return self.learner.num_updates

    def run(self) -> Iterator[Tick]:
        """Update after update to the end; rows and checkpoints are written when they are due.

        Raises:
            Diverged: the run ends, its status is written and the last good checkpoint kept.
        """
        first = self.begin()
        if first is not None:
            yield first
        while not self.is_done:
            try:
                self.step()
                tick = self.log_if_due()
            except Diverged as error:
                self.write_divergence(error)
                raise
            yield tick
        self.finish()

    def step(self) -> None:
        """Draws, learns, renews priorities."""
        draw = self.replay.draw(self.update)
        self.take_in(draw, self.learner.update(draw.values, draw.states, draw.loss_weights))

    def begin(self) -> Tick | None:
        """Writes the first row, which is an evaluation before any update; None if it was written before."""
        _keep_freed_memory()
        return Tick(0, self._log()) if self.metrics.is_empty else None

    @property
    def is_done(self) -> bool:
        """Whether all updates are done."""
        return self.update >= self.config.optimization.num_updates

    def take_in(self, draw: Draw, report: UpdateReport) -> None:
        """Renews priorities after an update, and counts its means."""
        self.replay.renew(draw, report)
        self._reports.add(report.means)

    def log_if_due(self) -> Tick:
        """Writes a row and a checkpoint if they are due after this update."""
        due = self.update % self.config.log_every == 0 or self.is_done
        return Tick(self.update, self._log() if due else None)

    def write_divergence(self, error: Diverged) -> None:
        """Writes the means up to here and how the run ended; the last good checkpoint is kept."""
        if self._reports.count:
            self.metrics.write(self._row())
        self.folder.write_status("diverged", self.update, str(error), self.metrics.written)

    def finish(self) -> None:
        """Writes that all updates are done."""
        self.folder.write_status("finished", self.update, written=self.metrics.written)

    def save(self) -> None:
        """Writes a checkpoint of this moment."""
        learner, replay = self.learner.state_dict(), self.replay.state_dict()
        store = self.replay.source.store
        values = {
            **learner.values,
            **replay.values,
            **self._reports.state_dict(),
            "metrics_size": self.metrics.written.size,
            "metrics_sha256": self.metrics.written.sha256,
            "state_shape": list(store.state_shape),
            "num_actions": store.num_actions,
        }
        state = LearnerState(learner.tensors | replay.tensors, values)
        write_checkpoint(self.folder.checkpoints, self.update, state)

    def save_interrupted(self) -> None:
        """Writes a checkpoint, and that the run was interrupted."""
        self.save()
        self.folder.write_status("interrupted", self.update, written=self.metrics.written)

    def close(self) -> None:
        """Closes what the run holds open."""
        self.metrics.close()
        self.replay.source.close()
        self._lock.close()

    def _log(self) -> Row:
        """Writes a row, with an evaluation if one is due, and a checkpoint."""
        row = self._row() | self.replay.law()
        if self.update % self.config.evaluation.evaluate_every == 0 or self.is_done:
            row |= self.evaluator.evaluate(row)
        self.metrics.write(row)
        self.save()
        self.folder.write_status("running", self.update, written=self.metrics.written)
        return row

    def _row(self) -> Row:
        return self._reports.row(self.update, self.config.ratio.learn_ratio)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came between two updates, and the run was saved."""


def run_to_end(
    trainer: Trainer, watch: Callable[[int, Row | None], None], *, log: str = "none"
) -> None:
    """Runs a trainer to its end and closes it; Ctrl-C saves first.

    Args:
        trainer: the run.
        watch: called after every update with its number, and its row of metrics if there is one.
        log: also write rows for this tool: none | tensorboard | wandb.

    Raises:
        Interrupted: after a checkpoint was written; a second Ctrl-C does not wait for it.
        Diverged: see `Trainer.run`.
        InputError: the tool is not installed.
    """
    logger = None
    try:
        logger = make_logger(log, trainer.folder, trainer.config, trainer.update)
        with stop_requests() as asked:
            for tick in trainer.run():
                watch(tick.update, tick.row)
                if logger is not None and tick.row is not None:
                    logger.write(tick.row)
                if asked:
                    trainer.save_interrupted()
                    raise Interrupted(
                        f"saved at update {trainer.update:,}; continue with: "
                        f"covshift resume {trainer.folder.path}"
                    )
    finally:
        if logger is not None:
            logger.close()
        trainer.close()


def _keep_freed_memory() -> None:
    """Asks glibc not to hand memory back between updates.

    Activations and gradients of an update are megabytes that are freed and taken again; otherwise their pages
    are faulted in anew each time.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**30)
