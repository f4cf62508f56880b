"""What ratio is asked for, and the functions of states that answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.experience import Experience, Semantics
from covshift.validation import Dense, Vector, check_discount


class RatioFunction(Protocol):
    """ĉ as a function of features or of state numbers, and what makes it again."""

    kind: ClassVar[str]

    def at(self, x: NDArray[Any]) -> Vector:
        """ĉ of each row."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `RatioEstimate.save` writes."""


@final
@dataclass(frozen=True, eq=False)
class TableRatio:
    """A ratio a state; 1 where the data say nothing."""

    c: Vector
    kind: ClassVar[str] = "table"

    def at(self, x: NDArray[Any]) -> Vector:
        """By number."""
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
        """By features."""
        return np.maximum(x @ self.w, 0.0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights."""
        return {"w": self.w}


@final
@dataclass(frozen=True, eq=False)
class NeuralRatio:
    """max(ĉ, 0) of a network with two hidden layers of ReLU, in NumPy, so that reading it needs no torch.

    Attributes:
        scale: what its output is multiplied by.
        positive: whether the output goes through softplus.
        num_states: of a table, whose states are seen as one-hot vectors; 0 for features.
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
    kind: ClassVar[str] = "neural"

    def at(self, x: NDArray[Any]) -> Vector:
        """By features, or by number."""
        inputs = np.eye(int(self.num_states))[x] if self.num_states else x
        hidden = np.maximum(inputs @ self.w_torso.T + self.b_torso, 0.0)
        hidden = np.maximum(hidden @ self.w_hidden.T + self.b_hidden, 0.0)
        output = (hidden @ self.w_out.T + self.b_out)[:, 0]
        c = np.logaddexp(0.0, output) if self.positive else np.maximum(output, 0.0)
        return np.asarray(float(self.scale) * c)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights and what they mean."""
        return {name: np.asarray(value) for name, value in vars(self).items()}


@final
@dataclass(frozen=True, eq=False)
class RatioProblem:
    """What ratio is asked for, of which data.

    The ratio is that of `theory.c_star`. With a `discount` γ below 1, in the semantics `visits`, an episode
    is moreover cut short with probability 1 - γ a step, so that at γ̂ = 1 the ratio is that of the
    discounted visits Σ γⁱ (P_πᵀ)ⁱ d₀: COP-TD with γρ for ρ.
    """

    experience: Experience
    ratio_discount: float
    semantics: Semantics
    discount: float = 1.0

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        check_discount("discount", self.discount)
        if self.discount < 1.0 and self.semantics != "visits":
            raise InputError(f"discounted visits are of the semantics visits, not {self.semantics}")

    @property
    def has_mean_one(self) -> bool:
        """Whether E_μ[c] = 1."""
        return self.semantics != "visits"


FUNCTIONS: dict[str, Callable[..., RatioFunction]] = {
    TableRatio.kind: TableRatio,
    LinearRatioFunction.kind: LinearRatioFunction,
    NeuralRatio.kind: NeuralRatio,
}
"""What a saved ratio is made of again, by its kind."""
