"""The ratio's loss, and a learner of the ratio of a fixed policy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covshift.config.training import RatioOptions
from covshift.errors import InputError
from covshift.learners.deep.batches import RatioBatch
from covshift.learners.deep.closure import MassClosure
from covshift.networks import LINEAR, FlooredLink, RatioHead, RatioLink
from covshift.rules import (
    importance_ratio,
    initial_state_target,
    inverse_ratio_weight,
    leave_one_out_residual,
    matching_loss,
    n_step_cop_target,
    squared_ratio_error,
)

_WEIGHT_MEMORY = 0.99
"""Share of the running mean of 1/c that one batch leaves unchanged."""


class RatioTerms(NamedTuple):
    """What a batch of states gives, before any step.

    Attributes:
        c_t: the predicted ratios, without their gradient.
        loss: η · error + weight · normalization, to be minimized.
        squared_error: mean of the squared errors, weighted as they are learned.
        residual: mean of target - c.
    """

    c_t: Tensor
    loss: Tensor
    squared_error: Tensor
    residual: Tensor


@final
class RatioLoss:
    """The ratio's loss on a batch of states: the one place that clips, weights and reduces its errors.

    The squared loss is eq. (9). The matching loss fits x = g(z), of which c = 1 - γ̂ + γ̂x is made, to
    X = (T - (1 - γ̂))/γ̂ by G(z) - X z, whose derivative in z is x - X = (c - T)/γ̂ (B7).

    Args:
        options: the ratio's options.
        link: how the head's scores become ratios.

    Attributes:
        mean_weight: running mean of 1/max(c, 1 - γ̂) under `inverse` weighting; NaN before the first batch.
    """

    def __init__(self, options: RatioOptions, link: RatioLink = LINEAR) -> None:
        self.options, self.link = options, link
        self._error = self._squared if options.ratio_loss == "squared" else self._matching
        if options.ratio_loss == "matching" and not isinstance(link, FlooredLink):
            raise InputError(
                "ratio_loss matching needs a RatioHead with a FlooredLink, such as make_link('safe', ratio_discount)"
            )
        self.mean_weight = torch.tensor(torch.nan, dtype=torch.float64)
        self._weights = self._inverse_weights if options.ratio_weighting == "inverse" else None

    def targets(self, c_source: Tensor, pi_window: Tensor, batch: RatioBatch) -> Tensor:
        """The bootstrap target of each state.

        Args:
            c_source: the target network's ratio at the window's first state.
            pi_window: n × batch, π(a|s) of the actions taken.
            batch: the states.
        """
        options, device = self.options, c_source.device
        rho_window = importance_ratio(pi_window, _tensor(batch.mu_window, device))
        if options.rho_clip is not None:
            rho_window = rho_window.clamp(max=options.rho_clip)
        if options.source_clip:
            c_source = clipped(c_source)
        if options.initial_rule == "source":
            c_source = initial_state_target(c_source, _tensor(batch.is_source_initial, device))
        target_t: Tensor = n_step_cop_target(
            c_source,
            list(rho_window),
            options.ratio_discount,
            list(_tensor(batch.is_initial_window, device)),
        )
        return target_t

    def terms(self, z_t: Tensor, target_t: Tensor, batch: RatioBatch) -> RatioTerms:
        """The loss of the predicted scores `z_t`; no gradient flows into targets or weights."""
        options = self.options
        target_t = target_t.detach()
        c_t = self.link.ratio(z_t)
        trained = _tensor(batch.is_trained_t, c_t.device).to(c_t.dtype)
        weights = trained
        if self._weights is not None:
            weights = trained * self._weights(c_t.detach())
        loss = options.ratio_loss_weight * (self._error(z_t, c_t, target_t) * weights).mean()
        if options.normalization_weight > 0:
            residual = leave_one_out_residual(c_t.detach())
            loss = loss + options.normalization_weight * (residual * c_t).mean()
        with torch.no_grad():
            squared_error = (squared_ratio_error(target_t, c_t) * weights).mean()
            gap = ((target_t - c_t) * trained).sum() / trained.sum().clamp(min=1.0)
        return RatioTerms(c_t.detach(), loss, squared_error, gap)

    def _squared(self, z_t: Tensor, c_t: Tensor, target_t: Tensor) -> Tensor:
        return squared_ratio_error(target_t, c_t)

    def _matching(self, z_t: Tensor, c_t: Tensor, target_t: Tensor) -> Tensor:
        assert isinstance(self.link, FlooredLink)
        gamma = self.link.ratio_discount
        arrivals_t = (target_t - (1.0 - gamma)) / gamma
        return matching_loss(z_t, arrivals_t, self.link.arrivals)

    def _inverse_weights(self, c_t: Tensor) -> Tensor:
        """1/c of each state over its running mean, under which the projected operator contracts (B1).

        A function of the state alone, never of the target.
        """
        floor = torch.as_tensor(
            1.0 - self.options.ratio_discount, dtype=c_t.dtype, device=c_t.device
        )
        weights: Tensor = inverse_ratio_weight(c_t, floor)
        mean = weights.mean().cpu().double()
        before = torch.where(self.mean_weight.isnan(), mean, self.mean_weight)
        self.mean_weight = before + (1.0 - _WEIGHT_MEMORY) * (mean - before)
        return weights / self.mean_weight


@final
class RatioLearner:
    """Learns c of a fixed policy by mini-batches, with a target network.

    Args:
        torso: maps observations to features.
        head: a `RatioHead`, or any module that maps features to c, one number per sample.
        policy: maps a batch of observations to probabilities, batch × actions; None if it moves, and each update is
            given its own.
        options: `target_epsilon` is not used, and η only scales the loss.
        learning_rate: Adam's step size.
        target_updates: updates between copies to the target network.

    Example:
        >>> import numpy as np
        >>> from covshift.config.training import RatioOptions
        >>> from covshift.networks import RatioHead
        >>> learner = RatioLearner(nn.Identity(), RatioHead(2, 0), lambda s: np.full((len(s), 2), 0.5), RatioOptions())
        >>> learner.ratio(np.eye(2, dtype=np.float32)).shape
        (2,)
    """

    def __init__(
        self,
        torso: nn.Module,
        head: nn.Module,
        policy: Callable[[NDArray[Any]], NDArray[Any]] | None,
        options: RatioOptions,
        *,
        learning_rate: float = 0.00025,
        target_updates: int = 250,
    ) -> None:
        self.network = nn.Sequential(torso, head)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.policy = policy
        self.loss = RatioLoss(options, head.link if isinstance(head, RatioHead) else LINEAR)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=learning_rate, fused=True)
        self.target_updates, self.num_updates = target_updates, 0
        self.closure: MassClosure | None = None
        if options.mass_closure:
            device = next(self.network.parameters()).device
            self.closure = MassClosure(options.ratio_discount, device)

    def update(
        self, batch: RatioBatch, policy: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    ) -> RatioTerms:
        """One step on a batch of states, with the learner's policy or, if it moves, with the one given here."""
        policy = self.policy if policy is None else policy
        if policy is None:
            raise InputError("update needs a policy: give it here, or to the RatioLearner")
        steps, size = batch.a_window.shape
        observed = batch.s_window.reshape(steps * size, *batch.s_window.shape[2:])
        pi = np.asarray(policy(observed))[np.arange(steps * size), batch.a_window.ravel()]
        pi_end, ends = None, batch.ends
        if self.closure is not None and ends is not None and len(ends.a_tm1):
            pi_end = np.asarray(policy(ends.s_tm1))[np.arange(len(ends.a_tm1)), ends.a_tm1]
        return self.learn(batch, pi.reshape(steps, size), pi_end)

    def learn(
        self,
        batch: RatioBatch,
        pi_window: NDArray[np.float64],
        pi_end: NDArray[np.float64] | None = None,
    ) -> RatioTerms:
        """The same where π(a|s) of the actions taken is known.

        Args:
            batch: the states; with the mass closure also some that end an episode.
            pi_window: n × batch, of the steps that led to the states.
            pi_end: of the actions that ended an episode; None if there are none.
        """
        device = next(self.network.parameters()).device
        with torch.no_grad():
            c_source = cast(Tensor, self.target(_tensor(batch.s_window[0], device)))
            pi = _tensor(pi_window.astype(np.float32), device)
            if self.closure is not None:
                c_source = c_source * self._mass_factor(self.closure, batch, pi_end, device)
            target_t = self.loss.targets(c_source, pi, batch)
        torso, head = self.network
        features = torso(_tensor(batch.s_t, device))
        z_t = head.score(features) if isinstance(head, RatioHead) else cast(Tensor, head(features))
        terms = self.loss.terms(z_t, target_t, batch)
        self.optimizer.zero_grad()
        terms.loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.num_updates += 1
        if self.num_updates % self.target_updates == 0:
            self.target.load_state_dict(self.network.state_dict())
        return terms

    def _mass_factor(
        self,
        closure: MassClosure,
        batch: RatioBatch,
        pi_end: NDArray[np.float64] | None,
        device: torch.device,
    ) -> Tensor:
        """α, from the states before the batch's own and from those that end an episode."""
        ends = batch.ends
        if ends is None:
            raise InputError("mass_closure needs batches with `ends`, states that end an episode")
        rho = np.ones(len(ends.a_tm1), dtype=np.float32)
        if pi_end is not None:
            taken = importance_ratio(pi_end, ends.mu_tm1.astype(np.float64))
            rho = np.where(ends.is_cut, 1.0, taken).astype(np.float32)
        states = np.concatenate([batch.s_window[-1], ends.s_tm1])
        c = cast(Tensor, self.target(_tensor(states, device)))
        before = len(batch.s_t)
        is_inner = _tensor(~batch.is_initial_window[-1], device)
        return closure.factor(c[:before], is_inner, c[before:], _tensor(rho, device), ends)

    def ratio(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """c of each observation, clipped at 0."""
        device = next(self.network.parameters()).device
        with torch.no_grad():
            c = clipped(cast(Tensor, self.network(_tensor(observations, device))))
        return np.asarray(c.cpu().numpy())


def clipped(c: Tensor) -> Tensor:
    """max(c, 0): what a ratio counts as wherever it is a priority or a weight, and by option a bootstrap source."""
    return c.clamp(min=0.0)


def _tensor(array: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    if isinstance(array, Tensor):
        return array
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
