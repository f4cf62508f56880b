"""The gradient of a learner's loss, recorded once as a plain list of tensor operations.

An update of a small network is hundreds of small calls, and most of its time is spent on deciding what to call:
modules, automatic differentiation, checks of arguments. A recording makes the same calls with the same numbers, to the
bit, and nothing else.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx
from torch.func import functional_call, functionalize, grad
from torch.fx.experimental.proxy_tensor import make_fx

from covshift.learners.deep.batches import RatioBatch, ValueBatch
from covshift.learners.deep.losses import AgentLoss, Forward
from covshift.learners.deep.products import fast_products
from covshift.learners.deep.ratio import RatioLoss
from covshift.networks import MinAtarTorso, make_link

_RESHAPES = ("view", "_unsafe_view", "expand", "slice", "detach", "alias")
"""Operations that do nothing where the shape stays the same."""

_FILLED = ("ones_like", "zeros_like", "new_zeros")
"""Operations that look only at the shape and the type of their argument."""


class Batches(NamedTuple):
    """What one agent's update takes; see `AgentLearner.update`."""

    values: ValueBatch
    ratios: RatioBatch | None
    loss_weights: NDArray[np.float64] | None


class Arguments(NamedTuple):
    """What a recording depends on; everything else is a constant of it.

    Attributes:
        online: parameters of the online network.
        target: parameters of the target network.
        running: see `AgentLoss.running_means`.
        leaves: the arrays of the batches; see `leaves_of`.
        factors: settings of the ratio that are numbers, where agents of a stack differ by them.
    """

    online: Sequence[Tensor]
    target: Sequence[Tensor]
    running: Sequence[Tensor]
    leaves: Sequence[Tensor]
    factors: Sequence[Tensor] = ()


class Outcome(NamedTuple):
    """What a recording computes.

    Attributes:
        gradients: of the online parameters, in their order.
        found: the fields of `Forward` by name, without those that are None.
        running: what the running means become.
    """

    gradients: Sequence[Tensor]
    found: dict[str, Tensor]
    running: Sequence[Tensor]


@final
class Recording:
    """The gradient of an `AgentLoss` for batches of one shape.

    Args:
        loss: what is recorded. Tensors that it holds besides parameters and running means become constants.
        example: batches that say which of their parts are None.
        arguments: example of what the recording is called with.
        factors: names of the settings that are among the arguments.
        unfolds: see `MinAtarTorso`.
        lift: what is done to the gradient before it is recorded, such as `vmap`.
    """

    def __init__(
        self,
        loss: AgentLoss,
        example: Batches,
        arguments: Arguments,
        *,
        factors: Sequence[str] = (),
        unfolds: bool = False,
        lift: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> None:
        one = copy.deepcopy(loss)
        for network in (one.network, one.target):
            if isinstance(network.torso, MinAtarTorso):
                network.torso.unfolds = unfolds
        names = [name for name, _ in loss.network.named_parameters()]
        self._num_parameters, self._found = len(names), [""]
        sizes = [len(part) for part in arguments]

        def of(online: Sequence[Tensor], *others: Sequence[Tensor]) -> tuple[Tensor, Any]:
            target, running, leaves, given = others
            if factors:
                _set_factors(one, dict(zip(factors, given, strict=True)))
            one.running_means = running
            parameters = dict(zip([f"network.{name}" for name in names], online, strict=True))
            parameters |= dict(zip([f"target.{name}" for name in names], target, strict=True))
            batch = cast(Batches, _rebuilt(example, iter(leaves)))
            found = cast(Forward, functional_call(one, parameters, tuple(batch)))
            known = {name: x for name, x in found._asdict().items() if x is not None}
            self._found = list(known)
            return found.loss, (list(known.values()), one.running_means)

        def flat(*tensors: Tensor) -> list[Tensor]:
            left = iter(tensors)
            parts = [[next(left) for _ in range(size)] for size in sizes]
            with fast_products(loss.device):
                gradients, (found, running) = lift(grad(of, has_aux=True))(*parts)
            return [*gradients, *found, *running]

        with torch.no_grad():
            # Without `functionalize`, some gradients would change their own results in place.
            recorded = make_fx(functionalize(flat))(
                *(tensor for part in arguments for tensor in part)
            )
        self._run = simplified(recorded)

    def __call__(self, arguments: Arguments) -> Outcome:
        """The gradient, and what else the loss found out."""
        online, target, running, leaves, factors = arguments
        with torch.no_grad():
            results = self._run(*online, *target, *running, *leaves, *factors)
        first, last = self._num_parameters, self._num_parameters + len(self._found)
        found = dict(zip(self._found, results[first:last], strict=True))
        return Outcome(results[:first], found, results[last:])


def simplified(recorded: fx.GraphModule) -> fx.GraphModule:
    """The same computation with fewer and cheaper calls, and the same results to the bit.

    Constants are computed once, equal calls are made once, reshapes that change nothing are left out, and operations
    are called by the names that torch binds in C++. Recordings that change tensors in place are left as they are.
    """
    graph = recorded.graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if any(_has_effects(node.target) for node in calls):
        return recorded
    _fold_constants(recorded)
    _merge_equal_calls(graph)
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = _binding(node.target)
    graph.eliminate_dead_code()
    recorded.recompile()
    return recorded


def leaves_of(batches: Batches) -> Iterator[Any]:
    """The arrays and numbers of nested named tuples, in order; None is passed over."""
    if batches.loss_weights is not None:
        batches = batches._replace(loss_weights=batches.loss_weights.astype(np.float32))
    return _leaves(batches)


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, tuple):
        for part in batch:
            yield from _leaves(part)
    elif batch is not None:
        yield batch


def _rebuilt(batch: Any, leaves: Iterator[Tensor]) -> Any:
    """The same named tuples with other leaves."""
    if isinstance(batch, tuple):
        return type(batch)(*(_rebuilt(part, leaves) for part in batch))
    return None if batch is None else next(leaves)


def _set_factors(loss: AgentLoss, factors: dict[str, Any]) -> None:
    """Gives a loss the factors of one agent."""
    options = dataclasses.replace(loss.config.ratio, **factors)
    link = make_link(loss.config.network.ratio_head, options.ratio_discount)
    for network in (loss.network, loss.target):
        assert network.ratio_head is not None
        network.ratio_head.link = link
    loss.ratio_loss = RatioLoss(options, link)
    if loss.closure is not None:
        loss.closure.ratio_discount = options.ratio_discount


def _has_effects(target: Any) -> bool:
    """Whether a call changes its arguments or draws random numbers."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags


def _fold_constants(recorded: fx.GraphModule) -> None:
    """Replaces what depends on no argument, or only on an argument's shape, by its value."""
    values: dict[fx.Node, Any] = {}

    def known(node: fx.Node) -> Any:
        if node in values:
            return values[node]
        like = node.meta["val"]
        return torch.empty(like.shape, dtype=like.dtype)

    for node in list(recorded.graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(recorded, node.target)
        elif node.op == "call_function" and (
            _is_named(node, _FILLED) or all(x in values for x in node.all_input_nodes)
        ):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known)
            values[node] = node.target(*args, **kwargs)
            with recorded.graph.inserting_before(node):
                constant = recorded.graph.create_node("get_attr", f"folded_{node.name}")
            setattr(recorded, f"folded_{node.name}", values[node])
            values[constant] = values[node]
            constant.meta.update(node.meta)
            node.replace_all_uses_with(constant)
    recorded.graph.eliminate_dead_code()


def _merge_equal_calls(graph: fx.Graph) -> None:
    """Leaves one of several calls with equal arguments, and none that only keeps a shape or undoes a transposition."""
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op not in ("call_function", "get_attr"):
            continue
        same = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if _keeps_shape(node):
            same = node.all_input_nodes[0]
        elif _is_named(node, ("t",)) and _is_named(node.all_input_nodes[0], ("t",)):
            same = node.all_input_nodes[0].all_input_nodes[0]
        if same is not node:
            node.replace_all_uses_with(same)
            graph.erase_node(node)


def _keeps_shape(node: fx.Node) -> bool:
    if not _is_named(node, _RESHAPES):
        return False
    before, after = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
    return before is not None and after is not None and before.shape == after.shape


def _is_named(node: fx.Node, names: Sequence[str]) -> bool:
    """Whether a node calls one of these operations."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.overloadpacket.__name__ in names


def _binding(target: torch._ops.OpOverload) -> Any:
    """The function that torch binds in C++ for an operation, which takes the same arguments; else the operation."""
    for place in (torch, torch.Tensor):
        found = getattr(place, target.overloadpacket.__name__, None)
        if isinstance(found, BuiltinFunctionType | MethodDescriptorType):
            return found
    return target
