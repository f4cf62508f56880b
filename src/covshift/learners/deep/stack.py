"""Several agents updated at once: the loss of one agent, lifted over a stack of parameters and batches."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from covshift.config.training import TrainConfig
from covshift.errors import InputError
from covshift.learners.deep.agent import AgentLearner, Diverged, Forward
from covshift.learners.deep.batches import RatioBatch, ValueBatch
from covshift.learners.deep.priorities import UpdateReport
from covshift.learners.deep.ratio import RatioLoss
from covshift.networks import MinAtarTorso, VectorTorso, make_link

_FACTORS = ("ratio_loss_weight", "ratio_discount")
"""Settings of the ratio by which the agents of a stack may differ."""


class Batches(NamedTuple):
    """What one agent's update takes; see `AgentLearner.update`."""

    values: ValueBatch
    ratios: RatioBatch | None
    loss_weights: NDArray[np.float64] | None


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
    is saved, loaded or evaluated is always up to date. The loss is `AgentLearner.forward`, lifted by `torch.func`
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
        self._parameters = [list(learner.network.parameters()) for learner in self.learners]
        self._optimizers = self._shared_optimizers()
        self._factors = self._differing_factors()
        self._programs: dict[Hashable, Callable[..., Any]] = {}

    def update(self, batches: Sequence[Batches]) -> list[UpdateReport | Diverged]:
        """One update of every agent, each from its own batches.

        An agent that diverges is left as it was before the update, and the others are updated.
        """
        batches = [*batches, *batches[:1]] if self._company else batches
        running = [_running_means(learner) for learner in self.learners + self._company]
        stacked = [torch.stack(means) for means in zip(*running, strict=True)]
        leaves = _stack_leaves([_with_float_weights(batch) for batch in batches])
        arguments = (self._online, self._target, self._factors, stacked, leaves)
        shapes = tuple(leaf.shape for leaf in leaves)
        with torch.no_grad():
            if shapes not in self._programs:
                self._programs[shapes] = self._record(batches[0], arguments)
            gradients, found, stacked = self._programs[shapes](*arguments)
        results = self._checked(found)
        self._step(gradients, results)
        for k, (learner, result) in enumerate(zip(self.learners, results, strict=True)):
            if isinstance(result, UpdateReport):
                _set_running_means(learner, [means[k] for means in stacked])
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

    def _step(
        self, gradients: dict[str, Tensor], results: Sequence[UpdateReport | Diverged]
    ) -> None:
        # The fused step walks through memory, so a gradient must have the memory layout of its weight.
        whole = [gradient.contiguous() for gradient in gradients.values()]
        by_agent = list(zip(*(gradient.unbind() for gradient in whole), strict=True))
        for parameters, slices, result in zip(self._parameters, by_agent, results, strict=False):
            for parameter, gradient in zip(parameters, slices, strict=True):
                # The optimizer passes over what has no gradient.
                parameter.grad = None if isinstance(result, Diverged) else gradient
        for optimizer in self._optimizers:
            optimizer.step()

    def _record(self, example: Batches, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        """The lifted gradient, as a list of tensor operations."""
        one = copy.deepcopy(self.learners[0])
        for network in (one.network, one.target):
            if isinstance(network.torso, MinAtarTorso):
                network.torso.unfolds = True
        forward = _Forward(one)

        def loss(
            online: dict[str, Tensor],
            target: dict[str, Tensor],
            factors: dict[str, Tensor],
            running: list[Tensor],
            leaves: list[Tensor],
        ) -> tuple[Tensor, tuple[dict[str, Tensor], list[Tensor]]]:
            if factors:
                _set_factors(one, factors)
            _set_running_means(one, running)
            parameters = {f"network.{name}": value for name, value in online.items()}
            parameters |= {f"target.{name}": value for name, value in target.items()}
            batch = cast(Batches, _rebuilt(example, iter(leaves)))
            found = cast(Forward, functional_call(forward, parameters, tuple(batch)))
            known = {name: x for name, x in found._asdict().items() if x is not None}
            return found.loss, (known, _running_means(one))

        def lifted(*arguments: Any) -> tuple[Any, Any, Any]:
            gradients, (found, running) = vmap(grad(loss, has_aux=True))(*arguments)
            return gradients, found, running

        return cast("Callable[..., Any]", make_fx(lifted)(*arguments))

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

    def _shared_optimizers(self) -> list[torch.optim.Adam]:
        """One optimizer for all agents with the same step size; it uses the learners' own moments."""
        groups: dict[tuple[float, float], list[AgentLearner]] = {}
        for learner in self.learners:
            fit = learner.config.optimization
            groups.setdefault((fit.learning_rate, fit.adam_epsilon), []).append(learner)
        optimizers = []
        for (rate, epsilon), learners in groups.items():
            parameters = [p for learner in learners for p in learner.network.parameters()]
            optimizer = torch.optim.Adam(parameters, lr=rate, eps=epsilon, fused=True)
            for learner in learners:
                for parameter in learner.network.parameters():
                    optimizer.state[parameter] = learner.optimizer.state[parameter]
            optimizers.append(optimizer)
        return optimizers


@final
class _Forward(nn.Module):
    """The forward pass of a learner as a module, whose parameters `functional_call` can replace."""

    def __init__(self, learner: AgentLearner) -> None:
        super().__init__()
        self.network, self.target = learner.network, learner.target
        self._forward = learner.forward

    def forward(self, *batches: Any) -> Forward:
        """See `AgentLearner.forward`."""
        return self._forward(*batches)


def _shared(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Parameters by name with the agents along the first axis; those of the networks become slices of them."""
    found = {}
    for name, _ in networks[0].named_parameters():
        each = [network.get_parameter(name) for network in networks]
        found[name] = torch.stack([parameter.detach() for parameter in each])
        for parameter, part in zip(each, found[name], strict=True):
            parameter.data = part
    return found


def _running_means(learner: AgentLearner) -> list[Tensor]:
    """What an update changes besides the networks and the optimizer."""
    closure = [] if learner.closure is None else [learner.closure.means]
    return [learner.ratio_loss.mean_weight, *closure]


def _set_running_means(learner: AgentLearner, means: Sequence[Tensor]) -> None:
    learner.ratio_loss.mean_weight = means[0]
    if learner.closure is not None:
        learner.closure.means = means[1]


def _set_factors(learner: AgentLearner, factors: dict[str, Any]) -> None:
    """Gives a learner, of which only the forward pass is used, the factors of one agent."""
    options = dataclasses.replace(learner.config.ratio, **factors)
    link = make_link(learner.config.network.ratio_head, options.ratio_discount)
    for network in (learner.network, learner.target):
        assert network.ratio_head is not None
        network.ratio_head.link = link
    learner.ratio_loss = RatioLoss(options, link)
    if learner.closure is not None:
        learner.closure.ratio_discount = options.ratio_discount


def _with_float_weights(batch: Batches) -> Batches:
    if batch.loss_weights is None:
        return batch
    return batch._replace(loss_weights=batch.loss_weights.astype(np.float32))


def _leaves(batch: Any) -> Iterator[Any]:
    """The arrays and numbers of nested named tuples, in order; None is passed over."""
    if isinstance(batch, tuple):
        for part in batch:
            yield from _leaves(part)
    elif batch is not None:
        yield batch


def _stack_leaves(batches: Sequence[Batches]) -> list[Tensor]:
    columns = zip(*(_leaves(batch) for batch in batches), strict=True)
    try:
        return [torch.from_numpy(np.stack(column)) for column in columns]
    except ValueError as error:  # As where the data of one run have no episode that ends.
        raise InputError(f"batches of different sizes: resume each run alone ({error})") from error


def _rebuilt(batch: Any, leaves: Iterator[Tensor]) -> Any:
    """The same named tuples with other leaves."""
    if isinstance(batch, tuple):
        return type(batch)(*(_rebuilt(part, leaves) for part in batch))
    return None if batch is None else next(leaves)
