"""C51 with a ratio head: one update from a batch of transitions and a batch of states."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam

from covshift.config.training import TrainConfig
from covshift.learners.deep.batches import RatioBatch, TraceBatch, ValueBatch
from covshift.learners.deep.closure import MassClosure
from covshift.learners.deep.priorities import DrawnTransitions, Priority, UpdateReport
from covshift.learners.deep.ratio import RatioLoss, clipped
from covshift.learners.deep.recorded import (
    Arguments,
    Batches,
    Recording,
    leaves_of,
    running_means,
    set_running_means,
)
from covshift.learners.deep.state import LearnerState
from covshift.networks import LINEAR, AgentNetwork, NatureTorso, value_support
from covshift.rules import (
    LinkOverflowError,
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


_UPDATES_BEFORE_RECORDING = 100
"""Updates that are differentiated anew, since recording takes as long as a few hundred updates save."""


class Diverged(Exception):  # noqa: N818
    """The loss is not finite, or the ratio is beyond its bound; the parameters are as before the update."""


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
class AgentLearner:
    """The online network, the target network and the optimizer.

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
        self.config, self.priority, self.device = config, priority, device
        self.network = network.to(device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        fit = config.optimization
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=fit.learning_rate, eps=fit.adam_epsilon, fused=True
        )
        self.support = value_support(config.value).to(device)
        head = self.network.ratio_head
        self.ratio_loss = RatioLoss(config.ratio, LINEAR if head is None else head.link)
        self.closure: MassClosure | None = None
        if config.ratio.mass_closure:
            self.closure = MassClosure(config.ratio.ratio_discount, device)
        self.num_updates = 0
        self._correction = config.replay.correction
        self._parameters = list(self.network.parameters())
        self._target_parameters = list(self.target.parameters())
        self._is_recorded = self._can_be_recorded()
        self._recordings: dict[Hashable, Recording] = {}
        self._updates_here = 0

    def update(
        self,
        values: ValueBatch,
        ratios: RatioBatch | None,
        loss_weights: NDArray[np.float64] | None = None,
    ) -> UpdateReport:
        """One step on the value's transitions and, where the ratio is learned, on the ratio's states.

        Args:
            values: transitions.
            ratios: states with the steps that led to them.
            loss_weights: weight of each transition's loss; None weighs all alike.

        Raises:
            Diverged: nothing was changed.
        """
        batches = Batches(values, ratios, loss_weights)
        self._updates_here += 1
        if self._is_recorded and self._updates_here > _UPDATES_BEFORE_RECORDING:
            found = self._update_recorded(batches)
        else:
            found = self._update(batches)
        self.finish_update()
        return UpdateReport(_to_numpy(found.priority), _to_numpy(found.ratio), found.means)

    def _update(self, batches: Batches) -> Forward:
        """A step by automatic differentiation."""
        values, ratios, given = batches
        weights = None if given is None else given.astype(np.float32)
        try:
            found = self.forward(values, ratios, weights)
        except LinkOverflowError as error:
            raise Diverged(f"update {self.num_updates + 1}: {error}") from error
        self.check(float(found.loss.detach()), None if found.size is None else float(found.size))
        self.optimizer.zero_grad()
        found.loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return found

    def _update_recorded(self, batches: Batches) -> Forward:
        """The same step to the bit, by a recording of its gradient."""
        leaves = [torch.from_numpy(np.asarray(leaf)) for leaf in leaves_of(batches)]
        online = [parameter.detach() for parameter in self._parameters]
        arguments = Arguments(online, self._target_parameters, running_means(self), leaves)
        shapes = tuple(leaf.shape for leaf in leaves)
        if shapes not in self._recordings:
            self._recordings[shapes] = Recording(self, batches, arguments)
        gradients, fields, running = self._recordings[shapes](arguments)
        found = Forward(**(dict.fromkeys(Forward._fields) | fields))  # type: ignore[arg-type]
        self.check(float(found.loss), None if found.size is None else float(found.size))
        set_running_means(self, running)
        self.step([gradient.contiguous() for gradient in gradients])
        return found

    def _can_be_recorded(self) -> bool:
        """Whether a recording pays, as on small networks, and computes the same."""
        # The exponential link looks at numbers to refuse scores that overflow.
        is_small = not isinstance(self.network.torso, NatureTorso)
        return (
            is_small
            and self.device.type == "cpu"
            and self.config.network.ratio_head != "exponential"
        )

    def forward(
        self,
        values: ValueBatch,
        ratios: RatioBatch | None,
        loss_weights: NDArray[np.float32] | None,
    ) -> Forward:
        """The loss of an update and what it reports, as a function of the networks and the batches alone."""
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

    def check(self, loss: float, size: float | None) -> None:
        """Compares the loss and the mean |c| of an update with their bounds.

        Raises:
            Diverged: one is beyond.
        """
        if not np.isfinite(loss):
            raise Diverged(f"the loss of update {self.num_updates + 1} is {loss}")
        bound = self.config.optimization.divergence_bound
        if size is not None and not size <= bound:
            raise Diverged(
                f"the mean |c| of update {self.num_updates + 1} is {size:.4g}, beyond {bound:g}"
            )

    def step(self, gradients: Sequence[Tensor]) -> None:
        """The optimizer's step; each gradient must have the memory layout of its parameter."""
        slots = [self.optimizer.state[parameter] for parameter in self._parameters]
        if not slots[0]:  # The first step makes the moments.
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            self.optimizer.step()
            return
        group = self.optimizer.param_groups[0]
        # The same function without what `Optimizer.step` does around it, which takes as long as a small network's step.
        adam(
            [parameter.detach() for parameter in self._parameters],
            list(gradients),
            [slot["exp_avg"] for slot in slots],
            [slot["exp_avg_sq"] for slot in slots],
            [],
            [slot["step"] for slot in slots],
            fused=True,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            amsgrad=group["amsgrad"],
            maximize=group["maximize"],
        )

    def finish_update(self) -> None:
        """Counts an update, and copies the network to the target network if that is due."""
        self.num_updates += 1
        if self.num_updates % self.config.target_updates == 0:
            self.target.load_state_dict(self.network.state_dict())

    def state_dict(self) -> LearnerState:
        """All that changes, for an exact resume."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"target.{name}": value for name, value in self.target.state_dict().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{slot}": value for slot, value in slots.items()}
        if self.closure is not None:
            tensors["closure"] = self.closure.means
        tensors = {name: value.detach().contiguous() for name, value in tensors.items()}
        weight = float(self.ratio_loss.mean_weight)
        values = {"update": self.num_updates, "mean_weight": None if np.isnan(weight) else weight}
        return LearnerState(tensors, values)

    def load_state_dict(self, state: LearnerState) -> None:
        """Continues from what `state_dict` gave."""
        self.num_updates = int(state.values["update"])
        weight = state.values["mean_weight"]
        self.ratio_loss.mean_weight.fill_(np.nan if weight is None else weight)
        self.network.load_state_dict(state.tensors_under("network."))
        self.target.load_state_dict(state.tensors_under("target."))
        if self.closure is not None:
            self.closure.means = state.tensors["closure"].to(self.device)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in state.tensors_under("optimizer.").items():
            index, slot = name.split(".")
            slots.setdefault(int(index), {})[slot] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        # The fused step walks through memory, so a moment must have the memory layout of its weight.
        for weight, moments in self.optimizer.state.items():
            for slot, value in moments.items():
                if value.shape == weight.shape:
                    moments[slot] = torch.empty_like(weight).copy_(value)

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
        c_source = self.target.ratio(features[size : size + states])
        if self.closure is not None:
            newest = size + past - states
            c_source = c_source * self._mass_factor(features[newest:], pi[past:], ratios)
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

    def _mass_factor(self, features: Tensor, pi_end: Tensor, ratios: RatioBatch) -> Tensor:
        """α, from the states before the batch's own and from those that end an episode, in this order."""
        assert self.closure is not None
        assert ratios.ends is not None
        ends, before = ratios.ends, len(ratios.s_t)
        c = self.target.ratio(features)
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


def _to_numpy(x: Tensor | None) -> NDArray[np.float64] | None:
    return None if x is None else x.double().cpu().numpy()
