"""Heads: from features to predictions."""

from __future__ import annotations

from typing import cast, final

from torch import Tensor, nn

from covshift.networks.links import LINEAR, RatioLink


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
    """c(s): a hidden layer, one score z, and the link that turns it into c; c starts near 1.

    Args:
        num_features: size of the torso's output.
        hidden: width of the ReLU layer; 0 leaves it out.
        link: from the score to c.
    """

    def __init__(self, num_features: int, hidden: int, link: RatioLink = LINEAR) -> None:
        super().__init__()
        self.link = link
        self.layers = _two_layers(num_features, hidden, 1)
        last = cast(nn.Linear, self.layers[-1])
        nn.init.constant_(last.bias, link.score_of_one)

    def score(self, features: Tensor) -> Tensor:
        """The score z: batch × features to batch."""
        return cast(Tensor, self.layers(features)).squeeze(-1)

    def forward(self, features: Tensor) -> Tensor:
        """The ratio c: batch × features to batch."""
        return self.link.ratio(self.score(features))


def _two_layers(num_features: int, hidden: int, outputs: int) -> nn.Sequential:
    if hidden == 0:
        return nn.Sequential(nn.Linear(num_features, outputs))
    return nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
