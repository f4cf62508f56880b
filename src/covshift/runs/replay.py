"""The replay: what an update draws, and the priorities that it renews."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from covshift.config.training import TrainConfig
from covshift.data.samplers import ListSampler, PrioritizedSampler, UniformSampler
from covshift.learners.deep import (
    LearnerState,
    Priority,
    RatioBatch,
    UpdateReport,
    ValueBatch,
    end_batch,
    ratio_batch,
    value_batch,
)
from covshift.records import Row
from covshift.runs.data_sources import DataSource
from covshift.runs.seeds import named_generator

_TEMPERING_PERIOD = 1000
"""Updates between changes of the tempering that keep the effective share above its floor."""


class Draw(NamedTuple):
    """Both batches of an update, with their rows.

    Attributes:
        ids: rows of the transitions.
        values: the transitions.
        loss_weights: their weights in the loss; None weighs all alike.
        state_ids: rows of the ratio's states; None where no ratio is learned.
        states: these states, with the steps that led to them.
    """

    ids: NDArray[np.int64]
    values: ValueBatch
    loss_weights: NDArray[np.float64] | None
    state_ids: NDArray[np.int64] | None
    states: RatioBatch | None


@final
class Replay:
    """Draws transitions for the value and states for the ratio from the window of a data source.

    Args:
        config: the run's configuration.
        source: the data.
        priority: how transitions are prioritized; None draws uniformly.
    """

    def __init__(self, config: TrainConfig, source: DataSource, priority: Priority | None) -> None:
        self.config, self.source, self.priority = config, source, priority
        store, (lo, hi) = source.store, source.window(0)
        rng = named_generator(config.seed, "value batches")
        self.transitions: UniformSampler | PrioritizedSampler
        if priority is None:
            self.transitions = UniformSampler(store.is_transition, rng, (lo, hi))
        else:
            self.transitions = PrioritizedSampler(
                store.is_transition,
                rng,
                source.most_rows,
                floor=priority.floor,
                tempering=config.replay.priority_tempering,
                uniform_share=config.replay.uniform_share,
            )
            self.transitions.slide(lo, hi, priority.of_new / priority.unit)
        self.states: UniformSampler | None = None
        if config.ratio.learn_ratio and config.ratio.ratio_batch == "uniform":
            rng = named_generator(config.seed, "ratio batches")
            self.states = UniformSampler(store.is_state, rng, (lo, hi))
        self.ends: ListSampler | None = None
        if config.ratio.mass_closure:
            rng = named_generator(config.seed, "ending batches")
            self.ends = ListSampler(self._ends_of_mass(), rng, (lo, hi))
            self._shares = self._shares_of_window()

    def draw(self, update: int) -> Draw:
        """Batches for the update of this number, from the window that it may draw from."""
        self.slide(update)
        floor = self.config.replay.effective_floor
        if floor > 0 and update % _TEMPERING_PERIOD == 0:
            assert isinstance(self.transitions, PrioritizedSampler)
            self.transitions.keep_effective_share(floor)
        config, store = self.config, self.source.store
        size = config.optimization.batch_size
        ids = self.transitions.sample(size)
        values = value_batch(store, ids, config.value)
        loss_weights = None
        if self.priority is not None and self.priority.loss_weights is not None:
            assert isinstance(self.transitions, PrioritizedSampler)
            loss_weights = self.priority.loss_weights(self.transitions.probabilities(ids))
        if not config.ratio.learn_ratio:
            return Draw(ids, values, loss_weights, None, None)
        state_ids = self.states.sample(size) if self.states else self.arrivals(ids)
        states = ratio_batch(store, state_ids, config.ratio)
        if self.ends is not None:
            states = states._replace(ends=end_batch(store, self.ends.sample(size), *self._shares))
        return Draw(ids, values, loss_weights, state_ids, states)

    def renew(self, draw: Draw, report: UpdateReport) -> None:
        """Writes the priorities that an update gave."""
        if self.priority is None:
            return
        assert isinstance(self.transitions, PrioritizedSampler)
        assert report.priority is not None
        unit = self.priority.unit
        ids, priority = draw.ids, report.priority
        if self.priority.renews_states:  # A row that is in both batches keeps its ratio.
            assert draw.state_ids is not None
            assert report.ratio is not None
            ids = np.concatenate([ids, draw.state_ids])
            priority = np.concatenate([priority, report.ratio])
        self.transitions.update(ids, priority / unit)
        self.priority.of_new = self.priority.of_new_after(self.priority.of_new, report)

    def slide(self, update: int) -> None:
        """Moves the window to where it is for the update of this number."""
        lo, hi = self.source.window(update)
        store = self.source.store
        if (lo, hi) != self.transitions.window:
            if isinstance(self.transitions, PrioritizedSampler):
                assert self.priority is not None
                entering = self.priority.of_new / self.priority.unit
                self.transitions.slide(lo, hi, entering, store.is_transition)
            else:
                self.transitions.slide(lo, hi, store.is_transition)
        if self.states is not None and (lo, hi) != self.states.window:
            self.states.slide(lo, hi, store.is_state)
        if self.ends is not None and (lo, hi) != self.ends.window:
            self.ends.slide(lo, hi, self._ends_of_mass())
            self._shares = self._shares_of_window()

    def arrivals(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The states that drawn transitions lead to; where an episode ends there, one that starts an episode.

        As many episodes start as end, so that initial states keep their share, weighted like what led to them.
        """
        store = self.source.store
        arrived = ids + 1
        ended = ~store.is_state[arrived]
        if ended.any():
            lo, hi = self.transitions.window
            starts = lo + np.flatnonzero(store.columns["is_initial"][lo:hi])
            if len(starts):  # Otherwise the ends stay, and are not trained on.
                arrived[ended] = self.transitions.rng.choice(starts, size=int(ended.sum()))
        return arrived

    def _ends_of_mass(self) -> NDArray[np.bool_]:
        """Which states pass their ratio on to no state; none with restarts, where the next episode gets it."""
        ends = self.source.store.is_end
        return np.zeros_like(ends) if self.config.ratio.semantics == "restart" else ends

    def _shares_of_window(self) -> tuple[float, float]:
        """The shares of the window's states that pass their ratio on to no state, and that get it from none."""
        assert self.ends is not None
        if self.config.ratio.semantics == "restart":
            return 0.0, 0.0
        lo, hi = self.ends.window
        is_state = self.source.store.is_state[lo:hi]
        is_initial = self.source.store.columns["is_initial"][lo:hi] & is_state
        return self.ends.count / is_state.sum(), is_initial.sum() / is_state.sum()

    def law(self) -> Row:
        """Columns about the law that transitions are drawn from; none if it is uniform."""
        if not isinstance(self.transitions, PrioritizedSampler):
            return {}
        return {
            "sampling_share": self.transitions.effective_share(),
            "tempering": self.transitions.tempering,
        }

    def state_dict(self) -> LearnerState:
        """All that changes, for an exact resume."""
        saved = self.transitions.save()
        source = self.source.state_dict()
        tensors = dict(source.tensors)
        if "priorities" in saved:
            tensors["priorities"] = torch.from_numpy(saved.pop("priorities"))
        values = {
            "value_sampler": saved,
            "ratio_sampler": self.states.save() if self.states else None,
            "end_sampler": self.ends.save() if self.ends else None,
            "new_priority": None if self.priority is None else self.priority.of_new,
            **source.values,
        }
        return LearnerState(tensors, values)

    def load_state_dict(self, state: LearnerState, update: int) -> None:
        """Continues from what `state_dict` gave after this many updates."""
        values = state.values
        if self.priority is not None:
            self.priority.of_new = float(values["new_priority"])
        self.slide(update)
        saved: dict[str, Any] = dict(values["value_sampler"])
        if "priorities" in state.tensors:
            saved["priorities"] = state.tensors["priorities"].numpy()
        self.transitions.restore(saved)
        if self.states is not None:
            self.states.restore(values["ratio_sampler"])
        if self.ends is not None:
            self.ends.restore(values["end_sampler"])
