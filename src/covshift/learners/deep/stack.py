"""Several agents updated at once: the loss of one agent, lifted over a stack of parameters and batches."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from covshift.config.training import TrainConfig
from covshift.errors import InputError
from covshift.learners.deep.agent import AgentLearner, Diverged
from covshift.learners.deep.priorities import UpdateReport
from covshift.learners.deep.recorded import Arguments, Batches, Recording, leaves_of
from covshift.networks import MinAtarTorso, VectorTorso

_FACTORS = ("ratio_loss_weight", "ratio_discount")
"""Settings of the ratio by which the agents of a stack may differ."""


def stack_key(config: TrainConfig) -> Hashable:
    """Equal for two runs whose agents can be updated as one stack; None if the run must be alone.

    The agents of a stack may differ in their seeds, data, samplers, learning rates and schedules, and in η and γ̂.
    """
    # The exponential link refuses scores that overflow, and frames fill the cores with one agent.
    if config.network.ratio_head == "exponential" or config.env.startswith("ALE/"):
        return None
    ratio = {
        name: value
        for name, value in dataclasses.asdict(config.ratio).items()
        if name not in _FACTORS
    }
    return (
        config.env,
        config.network,
        tuple(ratio.items()),
        (config.value.num_atoms, config.value.value_bound),
        (config.value.bootstrap_action, config.value.conservatism),
        (config.value.value_trace, config.value.trace_steps),
        (config.replay.priority, config.replay.correction),
        config.optimization.batch_size,
    )


@final
class AgentStack:
    """Learners with the same loss, whose updates are one computation.

    The stack owns no state. The parameters of the learners become slices of shared tensors, so that a learner that
    is saved, loaded or evaluated is always up to date. The loss is `AgentLoss` of one agent, lifted by `torch.func`
    and recorded once as a plain list of tensor operations, which costs less per update than differentiating anew.

    Args:
        learners: with equal `stack_key`, on one device. While the stack is used, only it updates them.
    """

    def __init__(self, learners: Sequence[AgentLearner]) -> None:
        self.learners = list(learners)
        first = self.learners[0]
        keys = {stack_key(learner.config) for learner in self.learners}
        if len(keys) > 1 or None in keys:
            raise InputError("these runs cannot be updated as one stack: resume each alone")
        if not isinstance(first.network.torso, MinAtarTorso | VectorTorso):
            raise InputError("runs on stacks of frames cannot be updated as one: resume each alone")
        # A product of one matrix rounds otherwise than the same product in a batch, so a lone agent gets company.
        self._company = [copy.deepcopy(first)] if len(self.learners) == 1 else []
        present = self.learners + self._company
        self._online = _shared([learner.network for learner in present])
        self._target = _shared([learner.target for learner in present])
        self._factors = self._differing_factors()
        self._recordings: dict[Hashable, Recording] = {}

    def update(self, batches: Sequence[Batches]) -> list[UpdateReport | Diverged]:
        """One update of every agent, each from its own batches.

        An agent that diverges is left as it was before the update, and the others are updated.
        """
        batches = [*batches, *batches[:1]] if self._company else batches
        running = [learner.loss.running_means for learner in self.learners + self._company]
        stacked = [torch.stack(means) for means in zip(*running, strict=True)]
        leaves = _stack_leaves(batches)
        arguments = Arguments(
            self._online, self._target, stacked, leaves, list(self._factors.values())
        )
        shapes = tuple(leaf.shape for leaf in leaves)
        if shapes not in self._recordings:
            self._recordings[shapes] = Recording(
                self.learners[0].loss,
                batches[0],
                arguments,
                factors=list(self._factors),
                unfolds=True,
                lift=vmap,
            )
        gradients, found, running_after = self._recordings[shapes](arguments)
        results = self._checked(found)
        # The fused step walks through memory, so a gradient must have the memory layout of its weight.
        whole = [gradient.contiguous() for gradient in gradients]
        for k, (learner, result) in enumerate(zip(self.learners, results, strict=True)):
            if isinstance(result, UpdateReport):
                learner.loss.running_means = [means[k] for means in running_after]
                learner.step([gradient[k] for gradient in whole])
                learner.finish_update()
        return results

    def _checked(self, found: dict[str, Tensor]) -> list[UpdateReport | Diverged]:
        losses = found["loss"].tolist()
        sizes = found["size"].tolist() if "size" in found else [None] * len(losses)
        priority, ratio = (
            found[name].double().cpu().numpy() if name in found else [None] * len(losses)
            for name in ("priority", "ratio")
        )
        results: list[UpdateReport | Diverged] = []
        for k, learner in enumerate(self.learners):
            try:
                learner.check(losses[k], sizes[k])
                results.append(UpdateReport(priority[k], ratio[k], found["means"][k]))
            except Diverged as error:
                results.append(error)
        return results

    def _differing_factors(self) -> dict[str, Tensor]:
        """The factors by which the agents differ, one number per agent."""
        found: dict[str, Tensor] = {}
        if self.learners[0].network.ratio_head is None:
            return found
        for name in _FACTORS:
            values = [getattr(learner.config.ratio, name) for learner in self.learners]
            if len(set(values)) > 1:
                found[name] = torch.tensor(values, dtype=torch.float64)
        return found


def _shared(networks: Sequence[nn.Module]) -> list[Tensor]:
    """Parameters with the agents along the first axis; those of the networks become slices of them."""
    found = []
    for each in zip(*(network.parameters() for network in networks), strict=True):
        found.append(torch.stack([parameter.detach() for parameter in each]))
        for parameter, part in zip(each, found[-1], strict=True):
            parameter.data = part
    return found


def _stack_leaves(batches: Sequence[Batches]) -> list[Tensor]:
    columns = zip(*(leaves_of(batch) for batch in batches), strict=True)
    try:
        return [torch.from_numpy(np.stack(column)) for column in columns]
    except ValueError as error:  # As where the data of one run have no episode that ends.
        raise InputError(f"batches of different sizes: resume each run alone ({error})") from error
