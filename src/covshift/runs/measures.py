"""What a row of the metrics is made of: means over updates, and evaluations."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from covshift.config.training import UPDATE_STEPS, TrainConfig
from covshift.learners.deep import REPORTED_MEANS, AgentLearner, Diverged
from covshift.records import Row, invariant
from covshift.rules import LinkOverflowError, chosen, expected_value
from covshift.runs.calibration import calibrate
from covshift.runs.data_sources import DataSource
from covshift.runs.evaluation import AgentPolicy, EpisodeResult, roll_out
from covshift.runs.seeds import named_generator

_EDGE_STATES = 256
"""States whose value distributions an evaluation looks at."""


@final
class MeanReports:
    """Means of what updates reported since the last row."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(REPORTED_MEANS), dtype=torch.float64, device=device)
        self.count = 0

    def add(self, means: Tensor) -> None:
        """Takes in an update."""
        self._sums += means
        self.count += 1

    def row(self, update: int, learns_ratio: bool) -> Row:
        """The means as columns; starts anew."""
        row: Row = {"update": update, "agent_steps": UPDATE_STEPS * update}
        if self.count:
            means = dict(zip(REPORTED_MEANS, (self._sums / self.count).tolist(), strict=True))
            row["value_loss"] = means["value_loss"]
            if learns_ratio:
                square = means["ratio_squared"]
                row |= {
                    "ratio_loss": means["ratio_loss"],
                    "residual": means["residual"],
                    "mean_ratio": means["ratio"],
                    "effective_share": means["ratio"] ** 2 / square if square > 0 else 0.0,
                }
        self._sums.zero_()
        self.count = 0
        return row

    def state_dict(self) -> dict[str, Any]:
        """All that changes."""
        return {"sums": self._sums.tolist(), "count": self.count}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Continues from what `state_dict` gave."""
        self._sums.copy_(torch.tensor(values["sums"], dtype=torch.float64))
        self.count = int(values["count"])


@final
class Evaluator:
    """Plays episodes: the greedy policy for the score, and π itself for the ratio under π.

    Args:
        config: the run's configuration.
        learner: its networks are played.
        source: the data, whose share of initial states bounds the mean ratio, and whose behavior policy is played
            for the calibration.
    """

    def __init__(self, config: TrainConfig, learner: AgentLearner, source: DataSource) -> None:
        self.config, self.learner, self.source = config, learner, source

    def evaluate(self, row: Row) -> Row:
        """The columns of an evaluation, beside a row of means over updates.

        Raises:
            Diverged: the ratio of a visited state is no finite number.
        """
        try:
            return self._evaluate(row)
        except LinkOverflowError as error:
            raise Diverged(
                f"evaluation after update {self.learner.num_updates}: {error}"
            ) from error

    def _evaluate(self, row: Row) -> Row:
        evaluation, learner = self.config.evaluation, self.learner
        greedy = AgentPolicy(learner.network, learner.support, evaluation.evaluation_epsilon)
        scored = self._play("evaluation", greedy, evaluation.evaluation_episodes)
        scores = np.array([episode.score for episode in scored])
        columns: Row = {
            "score": float(scores.mean()),
            "score_deviation": float(scores.std()),
            "episode_length": float(np.mean([episode.length for episode in scored])),
            "edge_share": self._edge_share(),
        }
        ratio = self.config.ratio
        if ratio.learn_ratio:
            pi = AgentPolicy(learner.target, learner.support, ratio.target_epsilon, learner.network)
            visited = self._play("ratio", pi, evaluation.ratio_episodes)
            mean_pi = sum(e.ratio_sum for e in visited) / sum(e.length for e in visited)
            columns["mean_ratio_pi"] = mean_pi
            if "mean_ratio" in row:
                mean_mu = float(row["mean_ratio"])
                columns["ratio_gain"] = mean_pi / mean_mu if mean_mu > 0 else np.nan
                share = self.source.initial_share()
                columns["invariant"] = invariant(mean_mu, mean_pi, ratio, share)
            columns |= self._calibrate(pi)
        return columns

    @torch.no_grad()
    def _edge_share(self) -> float:
        """The mean probability of the two outermost atoms, for the greedy action in states drawn from the data."""
        learner, store = self.learner, self.source.store
        rng = named_generator(self.config.seed, "edges", learner.num_updates)
        rows = rng.choice(np.flatnonzero(store.is_state), _EDGE_STATES)
        states = torch.from_numpy(store.states(rows)).to(learner.device)
        p = torch.softmax(learner.network.value_head(learner.network.torso(states)), dim=-1)
        greedy = chosen(p, expected_value(p, learner.support).argmax(dim=-1))
        return float(greedy[:, [0, -1]].sum(dim=-1).mean())

    def _calibrate(self, pi: AgentPolicy) -> Row:
        """Columns about the ratio's calibration; none where episodes cannot tell what the ratio should be."""
        ratio, behavior = self.config.ratio, self.source.behavior
        is_known = ratio.ratio_discount < 1 and ratio.semantics != "paper" and behavior is not None
        if not is_known or self.config.evaluation.calibration_episodes == 0:
            return {}
        assert behavior is not None
        rng = named_generator(self.config.seed, "calibration", self.learner.num_updates)
        found = calibrate(self.config, pi, behavior, self.source.store, rng)
        if found is None:
            return {}
        return {
            "exact_mean_ratio": found.exact_mean,
            "calibration_error": max(found.errors.values()),
        }

    def _play(self, name: str, policy: AgentPolicy, count: int) -> list[EpisodeResult]:
        config = self.config
        generator = named_generator(config.seed, name, self.learner.num_updates)
        return roll_out(policy, config.env, config.environment, count, generator)
