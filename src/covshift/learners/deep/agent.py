"""C51 with a ratio head: one update from a batch of transitions and a batch of states."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam

from covshift.learners.deep.batches import RatioBatch, ValueBatch
from covshift.learners.deep.losses import AgentLoss, Forward
from covshift.learners.deep.priorities import UpdateReport
from covshift.learners.deep.products import fast_products
from covshift.learners.deep.recorded import Arguments, Batches, Recording, leaves_of
from covshift.learners.deep.state import LearnerState
from covshift.networks import NatureTorso
from covshift.rules import LinkOverflowError

_UPDATES_BEFORE_RECORDING = 100
"""Updates that are differentiated anew, since recording takes as long as a few hundred updates save."""


class Diverged(Exception):  # noqa: N818
    """The loss is not finite, or the ratio is beyond its bound; the parameters are as before the update."""


@final
class AgentLearner:
    """Minimizes a loss: its two networks, the optimizer, and all that a resume needs.

    Args:
        loss: of the online network, with the target network.
    """

    def __init__(self, loss: AgentLoss) -> None:
        self.loss, self.config, self.device = loss, loss.config, loss.device
        self.network, self.target, self.support = loss.network, loss.target, loss.support
        fit = self.config.optimization
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=fit.learning_rate, eps=fit.adam_epsilon, fused=True
        )
        self.num_updates = 0
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
            with fast_products(self.device):
                found = self._update(batches)
        self.finish_update()
        return UpdateReport(_to_numpy(found.priority), _to_numpy(found.ratio), found.means)

    def _update(self, batches: Batches) -> Forward:
        """A step by automatic differentiation."""
        values, ratios, given = batches
        weights = None if given is None else given.astype(np.float32)
        try:
            found: Forward = self.loss(values, ratios, weights)
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
        arguments = Arguments(online, self._target_parameters, self.loss.running_means, leaves)
        shapes = tuple(leaf.shape for leaf in leaves)
        if shapes not in self._recordings:
            self._recordings[shapes] = Recording(self.loss, batches, arguments)
        gradients, fields, running = self._recordings[shapes](arguments)
        found = Forward(**(dict.fromkeys(Forward._fields) | fields))  # type: ignore[arg-type]
        self.check(float(found.loss), None if found.size is None else float(found.size))
        self.loss.running_means = running
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
        if self.loss.closure is not None:
            tensors["closure"] = self.loss.closure.means
        tensors = {name: value.detach().contiguous() for name, value in tensors.items()}
        weight = float(self.loss.ratio_loss.mean_weight)
        values = {"update": self.num_updates, "mean_weight": None if np.isnan(weight) else weight}
        return LearnerState(tensors, values)

    def load_state_dict(self, state: LearnerState) -> None:
        """Continues from what `state_dict` gave."""
        self.num_updates = int(state.values["update"])
        weight = state.values["mean_weight"]
        self.loss.ratio_loss.mean_weight.fill_(np.nan if weight is None else weight)
        self.network.load_state_dict(state.tensors_under("network."))
        self.target.load_state_dict(state.tensors_under("target."))
        if self.loss.closure is not None:
            self.loss.closure.means = state.tensors["closure"].to(self.device)
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


def _to_numpy(x: Tensor | None) -> NDArray[np.float64] | None:
    return None if x is None else x.double().cpu().numpy()
