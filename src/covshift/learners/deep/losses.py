"""The loss of an update of C51 with a ratio head: a function of two networks, a batch of transitions and a batch of states."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covshift.config.training import TrainConfig
from covshift.learners.deep.batches import RatioBatch, TraceBatch, ValueBatch
from covshift.learners.deep.closure import MassClosure
from covshift.learners.deep.priorities import DrawnTransitions, Priority
from covshift.learners.deep.ratio import RatioLoss, clipped
from covshift.networks import LINEAR, AgentNetwork, value_support
from covshift.rules import (
    categorical_target,
    chosen,
    conservative_gap,
    cross_entropy,
    epsilon_greedy_probabilities,
    expected_value,
    importance_ratio,
    retrace_coefficient,
    retrace_target,
)

REPORTED_MEANS = ("value_loss", "ratio_loss", "residual", "ratio", "ratio_squared")
"""Names of the means over a batch that an update reports."""

_LEAST_MEAN = 1e-6
"""Below this mean the ratio is taken for 0, and the loss is not divided by it."""


class Forward(NamedTuple):
    """What an update computes before its step.

    Attributes:
        loss: to be minimized.
        size: mean |c| over the ratio's batch; None where the ratio is not learned.
        priority: of each transition of the value's batch; None where transitions are drawn uniformly.
        ratio: c of each state of the ratio's batch, clipped at 0; None where it is not learned.
        means: in the order of `REPORTED_MEANS`.
    """

    loss: Tensor
    size: Tensor | None
    priority: Tensor | None
    ratio: Tensor | None
    means: Tensor


class _Losses(NamedTuple):
    """The losses of both batches.

    Attributes:
        total: to be minimized.
        value: mean loss of the value.
        squared_error: mean squared error of the ratio.
        residual: mean of target - c.
        c_t: the ratio at each state of the ratio's batch; None where it is not learned.
        drawn: what priorities are made of.
    """

    total: Tensor
    value: Tensor
    squared_error: Tensor
    residual: Tensor
    c_t: Tensor | None
    drawn: DrawnTransitions


@final
class AgentLoss(nn.Module):
    """The loss of both heads, and what an update reports.

    Passes are merged: the online network sees the value's s and the ratio's s' at once, the target network
    the value's s' and the ratio's s, since one pass over 64 states is cheaper than two over 32.

    Args:
        config: the run's configuration.
        network: the online network; the target network starts as its copy.
        priority: what an update writes as the priorities of its transitions; None for uniform replay.
        device: where both networks live.
    """

    def __init__(
        self,
        config: TrainConfig,
        network: AgentNetwork,
        priority: Priority | None,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.config, self.priority, self.device = config, priority, device
        self.network = network.to(device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.support = value_support(config.value).to(device)
        head = self.network.ratio_head
        self.ratio_loss = RatioLoss(config.ratio, LINEAR if head is None else head.link)
        self.closure: MassClosure | None = None
        if config.ratio.mass_closure:
            self.closure = MassClosure(config.ratio.ratio_discount, device)
        self._correction = config.replay.correction

    @property
    def running_means(self) -> list[Tensor]:
        """What an update changes besides the networks and the optimizer."""
        closure = [] if self.closure is None else [self.closure.means]
        return [self.ratio_loss.mean_weight, *closure]

    @running_means.setter
    def running_means(self, means: Sequence[Tensor]) -> None:
        self.ratio_loss.mean_weight = means[0]
        if self.closure is not None:
            self.closure.means = means[1]

    def forward(
        self,
        values: ValueBatch,
        ratios: RatioBatch | None,
        loss_weights: NDArray[np.float32] | None,
    ) -> Forward:
        """The loss of an update and what it reports."""
        losses = self._losses(values, ratios, loss_weights)
        priority = None if self.priority is None else self.priority.of_drawn(losses.drawn)
        if losses.c_t is None:
            size = ratio = None
            mean = square = torch.zeros((), device=self.device)
        else:
            size, ratio = losses.c_t.abs().mean(), clipped(losses.c_t)
            mean, square = ratio.mean(), (ratio**2).mean()
        means = torch.stack([losses.value, losses.squared_error, losses.residual, mean, square])
        return Forward(losses.total, size, priority, ratio, means)

    def _losses(
        self,
        values: ValueBatch,
        ratios: RatioBatch | None,
        loss_weights: NDArray[np.float32] | None,
    ) -> _Losses:
        """The forward pass."""
        p_target, ratio_target = self._targets(values, ratios)

        seen = [values.s_tm1] if ratios is None else [values.s_tm1, ratios.s_t]
        # One split, whose gradient is one join; two slices would each fill the whole gradient.
        merged = cast(Tensor, self.network.torso(self._states(*seen)))
        parts = torch.split(merged, [len(states) for states in seen])
        features = parts[0]
        logits = cast(Tensor, self.network.value_head(features))
        action = self._tensor(values.a_tm1)
        errors = cross_entropy(p_target, torch.log_softmax(chosen(logits, action), dim=-1))
        drawn = DrawnTransitions(
            errors.detach(), lambda: self._ratio_of(features), lambda: self._rho(values)
        )
        if self.config.value.conservatism > 0:
            q = expected_value(torch.softmax(logits, dim=-1), self.support)
            errors = errors + self.config.value.conservatism * conservative_gap(q, action)
        value_loss = self._weighted(errors, drawn, loss_weights).mean()
        if ratios is None:
            zero = torch.zeros((), device=self.device)
            return _Losses(value_loss, value_loss.detach(), zero, zero, None, drawn)
        assert ratio_target is not None
        assert self.network.ratio_head is not None
        ratio_features = parts[1]
        if self.config.network.ratio_gradient == "head":
            ratio_features = ratio_features.detach()
        z_t = self.network.ratio_head.score(ratio_features)
        terms = self.ratio_loss.terms(z_t, ratio_target, ratios)
        return _Losses(
            value_loss + terms.loss,
            value_loss.detach(),
            terms.squared_error,
            terms.residual,
            terms.c_t,
            drawn,
        )

    @torch.no_grad()
    def _targets(
        self, values: ValueBatch, ratios: RatioBatch | None
    ) -> tuple[Tensor, Tensor | None]:
        """The value's distribution and the ratio's target, both from the target network."""
        ahead = [values.s_t] if values.trace is None else [values.s_t, *values.trace.s_window]
        size = len(ahead) * len(values.a_tm1)
        seen = ahead if ratios is None else [*ahead, *ratios.s_window]
        if ratios is not None and ratios.ends is not None:
            seen.append(ratios.ends.s_tm1)
        features = cast(Tensor, self.target.torso(self._states(*seen)))
        p = torch.softmax(cast(Tensor, self.target.value_head(features)), dim=-1)
        q = expected_value(p, self.support)
        if values.trace is None:
            p_target = categorical_target(
                self._tensor(values.return_t),
                self._tensor(values.discount_t),
                chosen(p[:size], self._next_action(values, q[:size])),
                self.support,
            )
        else:
            p_target = self._retrace_target(p[:size], q[:size], values, values.trace)
        if ratios is None:
            return p_target, None
        steps, states = ratios.a_window.shape
        pi = epsilon_greedy_probabilities(q[size:], self.config.ratio.target_epsilon)
        past = steps * states
        pi_window = chosen(pi[:past], self._tensor(ratios.a_window.ravel())).view(steps, states)
        if self.closure is None:
            c_source = self.target.ratio(features[size : size + states])
        else:
            c = self.target.ratio(features[size:])
            c_source = c[:states] * self._mass_factor(c[past - states :], pi[past:], ratios)
        return p_target, self.ratio_loss.targets(c_source, pi_window, ratios)

    def _next_action(self, values: ValueBatch, q_t: Tensor) -> Tensor:
        """The action whose value is bootstrapped from; where the data have none, the greedy one."""
        greedy = q_t.argmax(dim=-1)
        if values.a_t is None:
            return greedy
        a_t = self._tensor(values.a_t)
        return torch.where(a_t >= 0, a_t, greedy)

    def _retrace_target(
        self, p: Tensor, q: Tensor, values: ValueBatch, trace: TraceBatch
    ) -> Tensor:
        """The value's distribution from all steps ahead, under the policy π whose ratio is learned."""
        later, size = trace.a_window.shape
        pi = epsilon_greedy_probabilities(q, self.config.ratio.target_epsilon)
        action = self._tensor(trace.a_window.ravel())
        left = later * size  # All states ahead but the last, in which no action counts.
        rho = importance_ratio(
            chosen(pi[:left], action).view(later, size), self._tensor(trace.mu_window)
        )
        target: Tensor = retrace_target(
            torch.cat([self._tensor(values.return_t)[None], self._tensor(trace.return_window)]),
            torch.cat([self._tensor(values.discount_t)[None], self._tensor(trace.discount_window)]),
            (pi[..., None] * p).sum(dim=1).view(later + 1, size, -1),
            chosen(p[:left], action).view(later, size, -1),
            retrace_coefficient(rho, self._tensor(trace.decay_window)),
            self.support,
        )
        return target

    def _mass_factor(self, c: Tensor, pi_end: Tensor, ratios: RatioBatch) -> Tensor:
        """α, from c of the states before the batch's own and of those that end an episode, in this order."""
        assert self.closure is not None
        assert ratios.ends is not None
        ends, before = ratios.ends, len(ratios.s_t)
        if self.config.ratio.source_clip:
            c = clipped(c)
        is_inner = ~self._tensor(ratios.is_initial_window[-1])
        pi = chosen(pi_end, self._tensor(ends.a_tm1))
        rho = importance_ratio(pi, self._tensor(ends.mu_tm1))
        rho = torch.where(self._tensor(ends.is_cut), 1.0, rho)
        return self.closure.factor(c[:before], is_inner, c[before:], rho, ends)

    def _weighted(
        self, errors: Tensor, drawn: DrawnTransitions, loss_weights: NDArray[np.float32] | None
    ) -> Tensor:
        if self._correction != "resample":
            c = drawn.ratio()
            if self._correction == "reweight-mean":
                c = c / c.mean().clamp(min=_LEAST_MEAN)
            return errors * c
        if loss_weights is None:
            return errors
        return errors * self._tensor(loss_weights)

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

    def _states(self, *parts: NDArray[Any] | Tensor) -> Tensor:
        if isinstance(parts[0], Tensor):
            return torch.cat(cast("tuple[Tensor, ...]", parts))
        return self._tensor(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _tensor(self, array: NDArray[Any] | Tensor) -> Tensor:
        if isinstance(array, Tensor):
            return array
        return torch.from_numpy(array).to(self.device, non_blocking=True)
