"""Which ratio is asked for, and the functions of states that answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.rules import LINKS, floored_ratio
from covshift.validation import Dense, Vector, check_discount


class RatioFunction(Protocol):
    """ĉ as a function of features or of state numbers, which can be saved as arrays."""

    kind: ClassVar[str]

    def at(self, x: NDArray[Any]) -> Vector:
        """ĉ of each row."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arguments that make the same function again."""


@final
@dataclass(frozen=True, eq=False)
class TableRatio:
    """One ratio per state; 1 where the data say nothing."""

    c: Vector
    kind: ClassVar[str] = "table"

    def at(self, x: NDArray[Any]) -> Vector:
        """ĉ by state number."""
        return np.asarray(self.c[x])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The table."""
        return {"c": self.c}


@final
@dataclass(frozen=True, eq=False)
class LinearRatioFunction:
    """max(φ(s)ᵀw, 0): a ratio is never negative."""

    w: Vector
    kind: ClassVar[str] = "linear"

    def at(self, x: NDArray[Any]) -> Vector:
        """ĉ by features."""
        return np.maximum(x @ self.w, 0.0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights."""
        return {"w": self.w}


@final
@dataclass(frozen=True, eq=False)
class MatchedRatioFunction:
    """1 - γ̂ + γ̂ g(φ(s)ᵀw): positive, and never below the floor that every discounted ratio has (B7).

    Attributes:
        w: one weight per feature.
        ratio_discount: γ̂.
        link: the name of g, `exponential` or `safe`.
    """

    w: Vector
    ratio_discount: float
    link: str
    kind: ClassVar[str] = "matched"

    def at(self, x: NDArray[Any]) -> Vector:
        """ĉ by features."""
        arrivals = LINKS[str(self.link)].ratio(np.asarray(x @ self.w))
        return floored_ratio(arrivals, float(self.ratio_discount))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights and settings."""
        return {name: np.asarray(value) for name, value in vars(self).items()}


@final
@dataclass(frozen=True, eq=False)
class NeuralRatio:
    """ĉ of a network with two hidden ReLU layers, 0 where it is negative, in NumPy so that it can be read without torch.

    Attributes:
        scale: factor that the output is multiplied by.
        positive: whether the output passes through softplus.
        num_states: number of states of a table, which the network sees as one-hot vectors; 0 for features.
        link: `exponential` or `safe` if the output is a score z and ĉ = 1 - γ̂ + γ̂ g(z) (B7); empty otherwise.
        ratio_discount: γ̂ of that floor.
    """

    w_torso: Dense
    b_torso: Vector
    w_hidden: Dense
    b_hidden: Vector
    w_out: Dense
    b_out: Vector
    scale: float
    positive: bool
    num_states: int
    link: str = ""
    ratio_discount: float = 1.0
    kind: ClassVar[str] = "neural"

    def at(self, x: NDArray[Any]) -> Vector:
        """ĉ by features, or by state number."""
        inputs = np.eye(int(self.num_states))[x] if self.num_states else x
        hidden = np.maximum(inputs @ self.w_torso.T + self.b_torso, 0.0)
        hidden = np.maximum(hidden @ self.w_hidden.T + self.b_hidden, 0.0)
        output = (hidden @ self.w_out.T + self.b_out)[:, 0]
        if str(self.link):
            c = floored_ratio(LINKS[str(self.link)].ratio(output), float(self.ratio_discount))
        elif self.positive:
            c = np.logaddexp(0.0, output)
        else:
            c = np.maximum(output, 0.0)
        return np.asarray(float(self.scale) * c)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights and settings."""
        return {name: np.asarray(value) for name, value in vars(self).items()}


@final
@dataclass(frozen=True, eq=False)
class RatioProblem:
    """Which ratio is asked for, from which data.

    The ratio is that of `theory.c_star`. With a `discount` γ < 1, which needs the semantics `visits`, every
    step also ends the episode with probability 1 - γ. At γ̂ = 1 the ratio is then that of the discounted visits
    Σ γⁱ (P_πᵀ)ⁱ d₀, and its rule is COP-TD with γρ for ρ.

    Args:
        experience: the data, with the target policy and features.
        ratio_discount: the ratio's discount γ̂.
        semantics: how episodes count.
        discount: γ of discounted visits; 1 for the ratio of the paper.
    """

    experience: Experience
    ratio_discount: float
    semantics: EpisodeSemantics
    discount: float = 1.0

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        check_discount("discount", self.discount)
        if self.discount < 1.0 and self.semantics != "visits":
            raise InputError(
                f"a discount below 1 needs the semantics visits, but they are {self.semantics}"
            )

    @property
    def has_mean_one(self) -> bool:
        """Whether E_μ[c] = 1."""
        return self.semantics != "visits"

    @property
    def default_method(self) -> str:
        """The ratio method to use unless one is named."""
        return "empirical" if self.experience.is_tabular else "least-squares"


def mean_over_data(experience: Experience, function: RatioFunction) -> float:
    """E_μ[ĉ] over the states of the weighted data, by which methods that lose the scale of ĉ divide."""
    total = count = 0.0
    for sample in experience.samples():
        total += float(sample.weight @ function.at(sample.x_tm1))
        count += float(sample.weight.sum())
    return total / count


FUNCTIONS: dict[str, Callable[..., RatioFunction]] = {
    TableRatio.kind: TableRatio,
    LinearRatioFunction.kind: LinearRatioFunction,
    MatchedRatioFunction.kind: MatchedRatioFunction,
    NeuralRatio.kind: NeuralRatio,
}
"""Classes of ratio functions by the kind they are saved under, for `RatioEstimate.load`."""
