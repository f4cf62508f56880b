"""Heads: from features to predictions."""

from __future__ import annotations

import math
from typing import cast, final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

_SOFTPLUS_OF_ONE = math.log(math.e - 1.0)
"""Its softplus is 1."""


@final
class ValueHead(nn.Module):
    """Logits of the return's distribution for each action: a hidden layer and an output.

    Args:
        num_features: size of the torso's output.
        hidden: width of the ReLU layer; 0 leaves it out.
        num_actions: number of distributions.
        num_atoms: size of each distribution.
    """

    def __init__(self, num_features: int, hidden: int, num_actions: int, num_atoms: int) -> None:
        super().__init__()
        self.num_actions, self.num_atoms = num_actions, num_atoms
        self.layers = _two_layers(num_features, hidden, num_actions * num_atoms)

    def forward(self, features: Tensor) -> Tensor:
        """batch × features to batch × actions × atoms."""
        logits = cast(Tensor, self.layers(features))
        return logits.view(-1, self.num_actions, self.num_atoms)


@final
class RatioHead(nn.Module):
    """c(s): a hidden layer and one output, which starts near 1.

    Args:
        num_features: size of the torso's output.
        hidden: width of the ReLU layer; 0 leaves it out.
        positive: apply softplus; otherwise the output can be negative and is clipped where it is used.
    """

    def __init__(self, num_features: int, hidden: int, *, positive: bool = False) -> None:
        super().__init__()
        self.positive = positive
        self.layers = _two_layers(num_features, hidden, 1)
        last = cast(nn.Linear, self.layers[-1])
        nn.init.constant_(last.bias, _SOFTPLUS_OF_ONE if positive else 1.0)

    def forward(self, features: Tensor) -> Tensor:
        """batch × features to batch."""
        output = cast(Tensor, self.layers(features)).squeeze(-1)
        return F.softplus(output) if self.positive else output


def _two_layers(num_features: int, hidden: int, outputs: int) -> nn.Sequential:
    if hidden == 0:
        return nn.Sequential(nn.Linear(num_features, outputs))
    return nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
