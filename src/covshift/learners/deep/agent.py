"""C51 with a ratio head: one update from a batch of transitions and a batch of states."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covshift.config.training import TrainConfig
from covshift.learners.deep.batches import RatioBatch, ValueBatch
from covshift.learners.deep.ratio import RatioLoss, clipped
from covshift.networks import AgentNetwork
from covshift.rules import (
    categorical_target,
    chosen,
    cross_entropy,
    epsilon_greedy_probabilities,
    expected_value,
    importance_ratio,
)

_TD_PRIORITY_FLOOR = 1e-10
"""Added to the cross-entropy under the root, as in Dopamine's Rainbow."""

SUMS = ("value_loss", "ratio_loss", "residual", "ratio", "ratio_squared")
"""Means over a batch that an update reports, in this order."""


class Diverged(Exception):  # noqa: N818
    """The loss is not finite, or the ratio is beyond its bound; the parameters are as before the update."""


class UpdateReport(NamedTuple):
    """What an update gave.

    Attributes:
        priority: of each transition of the value's batch, by the run's kind of priority; None if drawn uniformly.
        ratio: c of each state of the ratio's batch, clipped at 0; None where it is not learned.
        means: the numbers that `SUMS` names.
    """

    priority: NDArray[np.float64] | None
    ratio: NDArray[np.float64] | None
    means: Tensor


@final
class AgentLearner:
    """The online network, the target network and the optimizer.

    Passes are merged: the online network sees the value's s and the ratio's s' at once, the target network
    the value's s' and the ratio's s, since one pass over 64 states is cheaper than two over 32.

    Args:
        config: of the run.
        network: the online network; the target network starts as its copy.
        device: where both live.
    """

    def __init__(self, config: TrainConfig, network: AgentNetwork, device: torch.device) -> None:
        self.config, self.device = config, device
        self.network = network.to(device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        fit = config.optimization
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=fit.learning_rate, eps=fit.adam_epsilon, fused=True
        )
        bound = config.value.value_bound
        self.support = torch.linspace(-bound, bound, config.value.num_atoms, device=device)
        self.ratio_loss = RatioLoss(config.ratio)
        self.num_updates = 0

    def update(
        self,
        values: ValueBatch,
        ratios: RatioBatch | None,
        loss_weights: NDArray[np.float64] | None = None,
    ) -> UpdateReport:
        """One step on the value's transitions and, where the ratio is learned, on the ratio's states.

        Args:
            values: transitions.
            ratios: states.
            loss_weights: of each transition's loss; 1 where None is given.

        Raises:
            Diverged: nothing was changed.
        """
        replay, size = self.config.replay, len(values.a_tm1)
        p_target, ratio_target = self._targets(values, ratios)

        seen = [values.s_tm1] if ratios is None else [values.s_tm1, ratios.s_t]
        features = cast(Tensor, self.network.torso(self._states(*seen)))
        logits = cast(Tensor, self.network.value_head(features[:size]))
        action = self._tensor(values.a_tm1)
        errors = cross_entropy(p_target, torch.log_softmax(chosen(logits, action), dim=-1))
        weights = self._value_weights(features[:size], loss_weights)
        value_loss = (errors if weights is None else errors * weights).mean()
        loss, c_t = value_loss, None
        zero = torch.zeros((), device=self.device)
        squared_error, residual = zero, zero
        if ratios is not None:
            assert ratio_target is not None
            ratio_features = features[size:]
            if self.config.network.ratio_gradient == "head":
                ratio_features = ratio_features.detach()
            c_t = self.network.ratio(ratio_features)
            terms = self.ratio_loss.terms(c_t, ratio_target, ratios)
            loss = loss + terms.loss
            squared_error, residual = terms.squared_error, terms.residual
            c_t = c_t.detach()
        self._check(loss, c_t)

        priority = None
        if replay.priority == "td-error":
            priority = (errors.detach() + _TD_PRIORITY_FLOOR).sqrt()
        elif replay.priority in ("ratio", "ratio-rho"):
            priority = self._ratio_of(features[:size])
            if replay.priority == "ratio-rho":
                priority = priority * self._rho(values)

        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.num_updates += 1
        if self.num_updates % self.config.target_updates == 0:
            self.target.load_state_dict(self.network.state_dict())

        ratio = None if c_t is None else clipped(c_t)
        mean, square = (zero, zero) if ratio is None else (ratio.mean(), (ratio**2).mean())
        means = torch.stack([value_loss.detach(), squared_error, residual, mean, square])
        return UpdateReport(_to_numpy(priority), _to_numpy(ratio), means)

    @torch.no_grad()
    def _targets(
        self, values: ValueBatch, ratios: RatioBatch | None
    ) -> tuple[Tensor, Tensor | None]:
        """The value's distribution and the ratio's target, both from the target network."""
        size = len(values.a_tm1)
        seen = [values.s_t] if ratios is None else [values.s_t, *ratios.s_window]
        features = cast(Tensor, self.target.torso(self._states(*seen)))
        p = torch.softmax(cast(Tensor, self.target.value_head(features)), dim=-1)
        q = expected_value(p, self.support)
        p_target = categorical_target(
            self._tensor(values.return_t),
            self._tensor(values.discount_t),
            chosen(p[:size], q[:size].argmax(dim=-1)),
            self.support,
        )
        if ratios is None:
            return p_target, None
        steps, states = ratios.a_window.shape
        pi = epsilon_greedy_probabilities(q[size:], self.config.ratio.target_epsilon)
        pi_window = chosen(pi, self._tensor(ratios.a_window.ravel())).view(steps, states)
        c_source = self.target.ratio(features[size : size + states])
        return p_target, self.ratio_loss.targets(c_source, pi_window, ratios)

    def _value_weights(
        self, features: Tensor, loss_weights: NDArray[np.float64] | None
    ) -> Tensor | None:
        if self.config.replay.correction == "reweight":
            return self._ratio_of(features)
        return None if loss_weights is None else self._tensor(loss_weights.astype(np.float32))

    @torch.no_grad()
    def _ratio_of(self, features: Tensor) -> Tensor:
        return clipped(self.network.ratio(features.detach()))

    @torch.no_grad()
    def _rho(self, values: ValueBatch) -> Tensor:
        """ρ of the value's transitions, for which the target network must see s too."""
        features = self.target.torso(self._states(values.s_tm1))
        p = torch.softmax(cast(Tensor, self.target.value_head(features)), dim=-1)
        q = expected_value(p, self.support)
        pi = epsilon_greedy_probabilities(q, self.config.ratio.target_epsilon)
        return importance_ratio(chosen(pi, self._tensor(values.a_tm1)), self._tensor(values.mu_tm1))

    def _check(self, loss: Tensor, c_t: Tensor | None) -> None:
        total = float(loss.detach())
        if not np.isfinite(total):
            raise Diverged(f"the loss of update {self.num_updates + 1} is {total}")
        if c_t is not None:
            size, bound = float(c_t.abs().mean()), self.config.optimization.divergence_bound
            if not size <= bound:
                raise Diverged(
                    f"the mean |c| of update {self.num_updates + 1} is {size:.4g}, beyond {bound:g}"
                )

    def _states(self, *parts: NDArray[Any]) -> Tensor:
        return self._tensor(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def _to_numpy(x: Tensor | None) -> NDArray[np.float64] | None:
    return None if x is None else x.double().cpu().numpy()
