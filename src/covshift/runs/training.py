"""The training loop: one place that reads, top to bottom, as the experiment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray

from covshift.config.training import UPDATE_STEPS
from covshift.data.samplers import PrioritizedSampler, UniformSampler
from covshift.errors import InputError
from covshift.learners.deep import AgentLearner, Diverged, ratio_batch, value_batch
from covshift.learners.deep.agent import SUMS
from covshift.networks import make_agent_network
from covshift.records import MetricsFile, Row, RunFolder, invariant
from covshift.runs.checkpoints import Checkpoint, tensors_under, write_checkpoint
from covshift.runs.data_sources import DataSource, StoredData
from covshift.runs.evaluation import AgentPolicy, roll_out
from covshift.runs.seeds import named_generator

_RATIO_MEMORY = 0.99
"""Share of the running mean ratio that a batch leaves as it was."""


class Tick(NamedTuple):
    """An update was done.

    Attributes:
        update: how many were done in all.
        row: of the metrics, where one was due.
    """

    update: int
    row: Row | None


@final
class Trainer:
    """A run in progress.

    Args:
        folder: of the run, with its configuration written.
        feed: the data.
        device: where the networks live.
        lock: of the folder, held until `close`.
        checkpoint: from which it goes on; None starts it.
    """

    def __init__(
        self,
        folder: RunFolder,
        feed: DataSource,
        device: torch.device,
        lock: IO[bytes],
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._lock = lock
        self.folder, self.feed, self.config = folder, feed, folder.config()
        config, store = self.config, feed.store
        network = make_agent_network(config, store.state_shape, store.num_actions)
        self.learner = AgentLearner(config, network, device)
        self._value_sampler = self._make_value_sampler()
        self._ratio_sampler: UniformSampler | None = None
        if config.ratio.learn_ratio and config.ratio.ratio_batch == "uniform":
            rng = named_generator(config.seed, "ratio batches")
            self._ratio_sampler = UniformSampler(store.is_state, rng, feed.window(0))
        self._sums, self._count = torch.zeros(len(SUMS), dtype=torch.float64, device=device), 0
        self._new_priority = 1.0
        if checkpoint is not None:
            self._restore(checkpoint)
        size = 0 if checkpoint is None else int(checkpoint.state["metrics_size"])
        self.metrics = MetricsFile(folder.metrics_path, size)

    @property
    def update(self) -> int:
        """Updates that were done."""
        return self.learner.num_updates

    def run(self) -> Iterator[Tick]:
        """Update after update to the end; rows and checkpoints are written as they are due.

        Raises:
            Diverged: the run ends there, with its status written and the last good checkpoint kept.
        """
        fit = self.config.optimization
        if self.metrics.is_empty:
            yield Tick(0, self._log())
        while self.update < fit.num_updates:
            try:
                self._step()
            except Diverged as error:
                if self._count:
                    self.metrics.write(self._row())
                self.folder.write_status("diverged", self.update, str(error))
                raise
            due = self.update % self.config.log_every == 0 or self.update == fit.num_updates
            yield Tick(self.update, self._log() if due else None)
        self.folder.write_status("finished", self.update)

    def save(self) -> None:
        """Writes a checkpoint of this moment."""
        learner = self.learner
        tensors = {f"network.{k}": v for k, v in learner.network.state_dict().items()}
        tensors |= {f"target.{k}": v for k, v in learner.target.state_dict().items()}
        for index, slots in learner.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in slots.items()}
        sampled = self._value_sampler.save()
        if "priorities" in sampled:
            tensors["priorities"] = torch.from_numpy(sampled.pop("priorities"))
        state = {
            "update": self.update,
            "state_shape": list(self.feed.store.state_shape),
            "num_actions": self.feed.store.num_actions,
            "value_sampler": sampled,
            "ratio_sampler": self._ratio_sampler.save() if self._ratio_sampler else None,
            "mean_weight": learner.ratio_loss.mean_weight,
            "new_priority": self._new_priority,
            "sums": self._sums.tolist(),
            "count": self._count,
            "metrics_size": self.metrics.size,
        }
        tensors = {name: value.detach().contiguous() for name, value in tensors.items()}
        write_checkpoint(self.folder.checkpoints, self.update, tensors, state)

    def close(self) -> None:
        """Ends what the run holds open."""
        self.metrics.close()
        self.feed.close()
        self._lock.close()

    def _step(self) -> None:
        """Draw, learn, renew priorities."""
        config, store = self.config, self.feed.store
        self._slide()
        size = config.optimization.batch_size
        ids = self._value_sampler.sample(size)
        values = value_batch(store, ids, config.value)
        states, ratios = None, None
        if config.ratio.learn_ratio:
            states = (
                self._ratio_sampler.sample(size) if self._ratio_sampler else self._arrivals(ids)
            )
            ratios = ratio_batch(store, states, config.ratio)
        report = self.learner.update(values, ratios, self._loss_weights(ids))
        if report.ratio is not None and config.replay.priority != "td-error":
            mean = float(report.ratio.mean())
            self._new_priority += (1.0 - _RATIO_MEMORY) * (mean - self._new_priority)
        if isinstance(self._value_sampler, PrioritizedSampler) and report.priority is not None:
            self._value_sampler.update(ids, report.priority)
            if config.replay.priority == "td-error":
                self._new_priority = max(self._new_priority, float(report.priority.max()))
            if config.replay.refresh == "both" and report.ratio is not None:
                assert states is not None
                self._value_sampler.update(states, report.ratio)
        self._sums += report.means
        self._count += 1

    def _arrivals(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The states that drawn transitions lead to; where an episode ends there, one that starts an episode.

        As many episodes start as end, so that initial states keep their share, weighted like what led to them.
        """
        store = self.feed.store
        arrived = ids + 1
        ended = ~store.is_state[arrived]
        if ended.any():
            lo, hi = self._value_sampler.window
            starts = lo + np.flatnonzero(store.columns["is_initial"][lo:hi])
            if len(starts):  # Else the ends stay, and are not trained on.
                arrived[ended] = self._value_sampler.rng.choice(starts, size=int(ended.sum()))
        return arrived

    def _slide(self) -> None:
        lo, hi = self.feed.window(self.update)
        store = self.feed.store
        if isinstance(self._value_sampler, PrioritizedSampler):
            if (lo, hi) != self._value_sampler.window:
                self._value_sampler.slide(lo, hi, self._new_priority, store.is_transition)
        elif (lo, hi) != self._value_sampler.window:
            self._value_sampler.slide(lo, hi, store.is_transition)
        if self._ratio_sampler is not None and (lo, hi) != self._ratio_sampler.window:
            self._ratio_sampler.slide(lo, hi, store.is_state)

    def _loss_weights(self, ids: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """(N p)^-½ over the batch's largest, with TD-error priorities; else none."""
        if self.config.replay.priority != "td-error":
            return None
        sampler = cast(PrioritizedSampler, self._value_sampler)
        weights = 1.0 / np.sqrt(sampler.probabilities(ids))
        return np.asarray(weights / weights.max())

    def _make_value_sampler(self) -> UniformSampler | PrioritizedSampler:
        config, store = self.config, self.feed.store
        replay, rng = config.replay, named_generator(config.seed, "value batches")
        lo, hi = self.feed.window(0)
        if replay.priority == "uniform":
            return UniformSampler(store.is_transition, rng, (lo, hi))
        # The floor keeps states of ratio 0 alive; TD errors have their own. A window of N transitions has at most
        # 2 N rows, since an episode has at least one transition.
        sampler = PrioritizedSampler(
            store.is_transition,
            rng,
            hi - lo if isinstance(self.feed, StoredData) else 2 * config.data.window,
            floor=0.0 if replay.priority == "td-error" else replay.priority_floor,
            tempering=replay.priority_tempering,
            uniform_share=replay.uniform_share,
        )
        sampler.slide(lo, hi, 1.0)
        return sampler

    def _log(self) -> Row:
        """Writes a row, with an evaluation if that is due, and a checkpoint."""
        row = self._row()
        evaluation = self.config.evaluation
        last = self.update == self.config.optimization.num_updates
        if self.update % evaluation.evaluate_every == 0 or last:
            row |= self._evaluate(row)
        self.metrics.write(row)
        self.save()
        self.folder.write_status("running", self.update)
        return row

    def _row(self) -> Row:
        row: Row = {"update": self.update, "agent_steps": UPDATE_STEPS * self.update}
        if self._count:
            means = dict(zip(SUMS, (self._sums / self._count).tolist(), strict=True))
            row["value_loss"] = means["value_loss"]
            if self.config.ratio.learn_ratio:
                square = means["ratio_squared"]
                row |= {
                    "ratio_loss": means["ratio_loss"],
                    "residual": means["residual"],
                    "mean_ratio": means["ratio"],
                    "effective_share": means["ratio"] ** 2 / square if square > 0 else 0.0,
                }
        self._sums.zero_()
        self._count = 0
        return row

    def _evaluate(self, row: Row) -> Row:
        config, learner = self.config, self.learner
        evaluation, support = config.evaluation, learner.support

        def episodes(name: str, policy: AgentPolicy, count: int) -> Any:
            generator = named_generator(config.seed, name, self.update)
            return roll_out(policy, config.env, config.environment, count, generator)

        greedy = AgentPolicy(learner.network, support, evaluation.evaluation_epsilon)
        scored = episodes("evaluation", greedy, evaluation.evaluation_episodes)
        scores = np.array([episode.score for episode in scored])
        result: Row = {
            "score": float(scores.mean()),
            "score_deviation": float(scores.std()),
            "episode_length": float(np.mean([episode.length for episode in scored])),
        }
        if config.ratio.learn_ratio:
            pi = AgentPolicy(
                learner.target, support, config.ratio.target_epsilon, ratio_network=learner.network
            )
            visited = episodes("ratio", pi, evaluation.ratio_episodes)
            mean_pi = sum(e.ratio_sum for e in visited) / sum(e.length for e in visited)
            result["mean_ratio_pi"] = mean_pi
            if "mean_ratio" in row:
                mean_mu = float(row["mean_ratio"])
                result["ratio_gain"] = mean_pi / mean_mu if mean_mu > 0 else np.nan
                result["invariant"] = invariant(
                    mean_mu, mean_pi, config.ratio, self.feed.store.initial_share()
                )
        return result

    def _restore(self, checkpoint: Checkpoint) -> None:
        tensors, state, learner = checkpoint.tensors, checkpoint.state, self.learner
        learner.num_updates = int(state["update"])
        learner.network.load_state_dict(tensors_under(tensors, "network."))
        learner.target.load_state_dict(tensors_under(tensors, "target."))
        slots: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors_under(tensors, "optimizer.").items():
            index, slot = name.split(".")
            slots.setdefault(int(index), {})[slot] = value
        groups = learner.optimizer.state_dict()["param_groups"]
        learner.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        # The fused step walks memory as it lies, so that moments must lie as their weights do.
        for weight, moments in learner.optimizer.state.items():
            for slot, value in moments.items():
                if value.shape == weight.shape:
                    moments[slot] = torch.empty_like(weight).copy_(value)
        learner.ratio_loss.mean_weight = state["mean_weight"]
        self._new_priority = float(state["new_priority"])
        self._sums += torch.tensor(state["sums"], dtype=torch.float64, device=learner.device)
        self._count = int(state["count"])
        self._slide()
        sampled = dict(state["value_sampler"])
        if "priorities" in tensors:
            sampled["priorities"] = tensors["priorities"].numpy()
        self._value_sampler.restore(sampled)
        if self._ratio_sampler is not None:
            self._ratio_sampler.restore(state["ratio_sampler"])


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came between two updates, and the run was saved."""


def run_to_end(
    trainer: Trainer, watch: Callable[[int, Row | None], None], *, tensorboard: bool = False
) -> None:
    """Runs a trainer to its end and closes it; Ctrl-C saves first.

    Args:
        trainer: the run.
        watch: is told of every update, with its row where there is one.
        tensorboard: whether rows go into TensorBoard events too.

    Raises:
        Interrupted: after a checkpoint was written; a second Ctrl-C does not wait for it.
        Diverged: see `Trainer.run`.
    """
    events = _Events(trainer) if tensorboard else None
    try:
        with _interrupts() as asked:
            for tick in trainer.run():
                watch(tick.update, tick.row)
                if events is not None and tick.row is not None:
                    events.write(tick.row)
                if asked:
                    trainer.save()
                    trainer.folder.write_status("interrupted", trainer.update)
                    place = trainer.folder.path
                    raise Interrupted(
                        f"saved at update {trainer.update:,}; go on with: covshift resume {place}"
                    )
    finally:
        trainer.close()


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that Ctrl-C, SIGTERM and a closed terminal put something into; the second of a kind interrupts at once."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if number in asked:
            raise KeyboardInterrupt
        asked.append(number)

    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # As under nohup.
        kinds.append(signal.SIGHUP)
    before = {}
    try:
        for number in kinds:
            before[number] = signal.signal(number, note)
    except ValueError:  # Not the main thread, where no signal arrives.
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@final
class _Events:
    """Rows as TensorBoard events, those after the checkpoint hidden."""

    def __init__(self, trainer: Trainer) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
                "TensorBoard events need the extra 'tensorboard': pip install 'covshift[tensorboard]'"
            ) from error
        place = str(trainer.folder.path / "tensorboard")
        self._writer = SummaryWriter(place, purge_step=trainer.update + 1)

    def write(self, row: Row) -> None:
        """A scalar for each number."""
        for name, value in row.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(name, value, int(row["update"]))
        self._writer.flush()
