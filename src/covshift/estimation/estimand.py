"""The question about a policy, and the settings that estimators share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from covshift.errors import InputError
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.validation import check_discount

Objective: TypeAlias = Literal["discounted", "average"]


@final
@dataclass(frozen=True)
class Estimand:
    """Which value of π is asked for.

    `discounted`: J = E[Σ γᵗ r_{t+1}] of π from the start distribution d₀, which is the distribution of the
    initial states in the data. γ = 1 is the expected return of an episode.

    `average`: lim 1/T Σ r_t of π. Where an episode ends, the next one starts from d₀ (the semantics
    `restart`).

    γ is part of the estimand; γ̂ is not. With γ̂ < 1 an estimator of the average reward answers for d̂_π: follow
    π with probability γ̂, else start again from d_μ. This is nearer to the data, so the answer has less
    variance but is biased towards the value of the behavior policy.

    Args:
        objective: `discounted` or `average`.
        discount: γ of the value.
        ratio_discount: γ̂ of the ratio, for estimators of the average reward that use one.
        ratio_method: the method to estimate that ratio; by default that of `estimate_ratio`.
        ratio_options: options of that method.
        ridge: added to the diagonal of mean matrices by estimators on features; tables have none.
    """

    objective: Objective = "discounted"
    discount: float = 0.99
    ratio_discount: float = 1.0
    ratio_method: str | None = None
    ratio_options: dict[str, Any] = field(default_factory=dict)
    ridge: float = 1e-6

    def __post_init__(self) -> None:
        if self.objective not in ("discounted", "average"):
            raise InputError(f"objective must be discounted or average, but it is {self.objective}")
        check_discount("discount", self.discount)
        check_discount("ratio_discount", self.ratio_discount)
        if not self.ridge >= 0:
            raise InputError(f"ridge must not be negative, but it is {self.ridge}")

    @property
    def is_average(self) -> bool:
        """Whether the average reward is asked for."""
        return self.objective == "average"

    def describe(self) -> str:
        """The estimand in words."""
        if not self.is_average:
            return f"E[Σ γᵗ r] of π from d₀, γ = {self.discount:g}"
        ratios = "" if self.ratio_discount == 1.0 else f" (ratios with γ̂ = {self.ratio_discount:g})"
        return f"average reward of π{ratios}"

    def check(self, experience: Experience) -> None:
        """Raises an InputError if the data cannot answer."""
        logs = experience.logs
        if not self.is_average and not logs.is_initial.any():
            raise InputError(
                "a discounted value is one from initial states, but none is marked is_initial; "
                "ask for the average"
            )
        if not self.is_average and self.discount == 1.0 and not logs.has_episodes:
            raise InputError(
                f"none of {len(logs)} trajectories terminated, so the undiscounted return is not finite; use a "
                "discount below 1"
            )

    def semantics(self, experience: Experience) -> EpisodeSemantics:
        """How episodes count in the ratio that answers."""
        if not self.is_average:
            return "visits"
        return "restart" if experience.logs.has_episodes else "continuing"

    def problem(self, experience: Experience) -> RatioProblem:
        """The ratio that answers."""
        return RatioProblem(
            experience,
            self.ratio_discount if self.is_average else 1.0,
            self.semantics(experience),
            1.0 if self.is_average else self.discount,
        )

    def method(self, problem: RatioProblem) -> tuple[str, dict[str, Any]]:
        """The method that estimates it, and its options."""
        method = problem.default_method if self.ratio_method is None else self.ratio_method
        options = dict(self.ratio_options)
        if method in ("least-squares", "matching") and not problem.experience.is_tabular:
            options.setdefault("ridge", self.ridge)
        return method, options

    def ratio(self, experience: Experience) -> RatioFunction:
        """The ratio whose weights cρ turn the data into π's."""
        problem = self.problem(experience)
        method, options = self.method(problem)
        asked = problem.ratio_discount, problem.semantics, problem.discount, method, repr(options)
        return experience.once(("ratio", *asked), lambda: fit_ratio(problem, method, **options))
