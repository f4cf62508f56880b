"""Links: from the score z that a ratio head puts out to the ratio c."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from covshift.rules import LINKS, Link, floored_ratio


class RatioLink(Protocol):
    """Turns scores into ratios.

    Attributes:
        score_of_one: the score whose ratio is 1, where a head starts.
    """

    score_of_one: ClassVar[float]

    def ratio(self, z: Tensor) -> Tensor:
        """c of each score."""


@final
@dataclass(frozen=True)
class LinearLink:
    """c = z, which can be negative and is clipped at 0 where it is used (paper)."""

    score_of_one: ClassVar[float] = 1.0

    def ratio(self, z: Tensor) -> Tensor:
        """The score itself."""
        return z


@final
@dataclass(frozen=True)
class SoftplusLink:
    """c = log(1 + e^z) > 0."""

    score_of_one: ClassVar[float] = math.log(math.e - 1.0)

    def ratio(self, z: Tensor) -> Tensor:
        """Softplus of the score."""
        return F.softplus(z)


@final
@dataclass(frozen=True)
class FlooredLink:
    """c = 1 - γ̂ + γ̂ g(z) with g > 0: never below the floor 1 - γ̂ that every discounted ratio has (B7).

    Args:
        arrivals: g, which models what arrives by transitions; g(0) = 1.
        ratio_discount: γ̂.
    """

    arrivals: Link
    ratio_discount: float
    score_of_one: ClassVar[float] = 0.0

    def ratio(self, z: Tensor) -> Tensor:
        """1 - γ̂ + γ̂ g(z)."""
        return floored_ratio(self.arrivals.ratio(z), self.ratio_discount)


LINEAR = LinearLink()
SOFTPLUS = SoftplusLink()


def make_link(name: str, ratio_discount: float) -> RatioLink:
    """The link that the configuration's `ratio_head` names."""
    if name in LINKS:
        return FlooredLink(LINKS[name], ratio_discount)
    return SOFTPLUS if name == "softplus" else LINEAR
