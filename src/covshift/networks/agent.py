"""The agent's network: one torso, a value head, and a ratio head on the torso's output."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor, nn

from covshift.config.training import TrainConfig, ValueOptions
from covshift.networks.heads import RatioHead, ValueHead
from covshift.networks.links import make_link
from covshift.networks.torsos import make_torso


@final
class AgentNetwork(nn.Module):
    """A torso with its heads.

    Args:
        torso: maps observations to features.
        value_head: maps features to logits, batch × actions × atoms.
        ratio_head: maps features to c, one number per sample; None where the ratio is not learned.
    """

    def __init__(
        self, torso: nn.Module, value_head: nn.Module, ratio_head: RatioHead | None
    ) -> None:
        super().__init__()
        self.torso, self.value_head, self.ratio_head = torso, value_head, ratio_head

    def ratio(self, features: Tensor) -> Tensor:
        """c of each sample, as the head gives it."""
        assert self.ratio_head is not None
        return cast(Tensor, self.ratio_head(features))


def value_support(options: ValueOptions) -> Tensor:
    """The atoms of the return's distribution."""
    return torch.linspace(-options.value_bound, options.value_bound, options.num_atoms)


def make_agent_network(
    config: TrainConfig, state_shape: tuple[int, ...], num_actions: int
) -> AgentNetwork:
    """The network of a run, its weights drawn from the run's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        torso = make_torso(state_shape, config.network.width)
        hidden = torso.head_hidden
        value_head = ValueHead(torso.num_features, hidden, num_actions, config.value.num_atoms)
        ratio_head = None
        if config.ratio.learn_ratio:
            link = make_link(config.network.ratio_head, config.ratio.ratio_discount)
            ratio_head = RatioHead(torso.num_features, hidden, link)
    return AgentNetwork(torso, value_head, ratio_head)
