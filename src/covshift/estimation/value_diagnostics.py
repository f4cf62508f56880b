"""Whether to believe an estimated value, as numbers, a flag and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.diagnostics import FEWEST_EFFECTIVE, RARE, Diagnostics, Flag
from covshift.estimation.estimand import Estimand
from covshift.estimation.estimators import ESTIMATORS, Trust
from covshift.estimation.experience import Experience
from covshift.estimation.importance import effective_trajectories, middle_step
from covshift.estimation.ratio import fit_and_diagnose
from covshift.validation import Vector

SURE = 3.0
"""Standard errors by which two opinions must differ before chance does not explain it."""


@final
@dataclass(frozen=True, eq=False)
class ValueDiagnostics:
    """Diagnostics of an estimated value.

    Attributes:
        trusts: what the estimator relies on; see `Estimator`.
        flag: `ok`; the flag of the ratio's diagnostics; `low support` if products of ρ leave too few trajectories; `unstable`
            if `mis-sn` and `fqe` differ by more than three standard errors and by more than half of the interval.
        effective_sample: how many equally weighted transitions, or trajectories for products of ρ, would vary as much.
        sample_size: how many there are.
        effective_by_step: for products of ρ, the effective number of trajectories after each step; empty otherwise.
        step: for products of ρ, the step by which half of the value is decided, at which the effective number is judged.
        ratio: diagnostics of the ratio; None if the estimator uses none, or none was found.
        disagreement: `mis-sn` - `fqe` from the same fits; NaN without an interval.
        disagreement_error: its standard error, over the bootstrap's replicates.
    """

    trusts: Trust
    flag: Flag
    effective_sample: float
    sample_size: int
    effective_by_step: Vector
    step: int = 0
    ratio: Diagnostics | None = None
    disagreement: float = float("nan")
    disagreement_error: float = float("nan")

    @property
    def violation(self) -> float | None:
        """By how much the ratio's equation is violated on held-out trajectories; None if that was not checked."""
        ratio = self.ratio
        return None if ratio is None or np.isnan(ratio.violation) else ratio.violation

    @property
    def verdict(self) -> str:
        """Whether to believe the estimate, and why, in one or two sentences."""
        if self.flag == "ok":
            return f"Believe it: {self._support()}{self._agreement()}."
        return f"{self._warning()}: {self._reason()}."

    def compared(self, opinions: Vector, half_width: float) -> ValueDiagnostics:
        """The same, with what `mis-sn` and `fqe` say: a row for the data, then one per replicate."""
        differences = opinions[:, 0] - opinions[:, 1]
        found = differences[1:][np.isfinite(differences[1:])]
        if len(found) < 2 or not np.isfinite(differences[0]):
            return self
        size, error = abs(float(differences[0])), float(found.std(ddof=1))
        is_unstable = size > SURE * error and size > half_width
        return replace(
            self,
            disagreement=float(differences[0]),
            disagreement_error=error,
            flag="unstable" if self.flag == "ok" and is_unstable else self.flag,
        )

    def _support(self) -> str:
        if self.trusts == "data":
            return f"it is a mean over {self.sample_size:,} logged trajectories"
        what = "trajectories" if self.trusts == "products" else "transitions"
        when = f" after {self.step + 1} steps" if self.trusts == "products" else ""
        return f"the data hold what the policy does ({self.effective_sample:,.0f} of {self.sample_size:,} {what} count{when})"

    def _agreement(self) -> str:
        if not np.isfinite(self.disagreement):
            return ""
        return ", and the ratio alone and the fitted Q alone agree within chance"

    def _warning(self) -> str:
        return "Doubt it" if self.flag in ("misspecified", "unstable") else "Do not believe it"

    def _reason(self) -> str:
        ratio = self.ratio
        if self.flag == "unstable":
            if not np.isfinite(self.disagreement):
                return "the data do not determine where the policy goes, since no ratio was found"
            return (
                f"the ratio alone (mis-sn) and the fitted Q alone (fqe) differ by {abs(self.disagreement):.3g} ± "
                f"{self.disagreement_error:.2g}, which chance does not explain, so one of them is wrong; try other features"
            )
        if self.flag == "low support" and ratio is None:
            return (
                f"after {self.step + 1} steps, when half of the value is decided, products of ρ leave "
                f"{self.effective_sample:.1f} of {self.sample_size:,} trajectories; use dr"
            )
        assert ratio is not None
        if self.flag == "low support":
            rarely = (
                f", {ratio.rare_mass:.0%} fewer than {RARE:.0f} times"
                if ratio.rare_mass > 0
                else ""
            )
            return (
                f"{ratio.unsupported_mass:.0%} of what the policy does was never logged{rarely}, and {self.effective_sample:,.0f} of "
                f"{self.sample_size:,} transitions count; collect data closer to the policy"
            )
        if self.flag == "misspecified":
            part = {
                "either": "so that it rests on the fitted Q alone",
                "ratio": "so that its weights are wrong",
            }
            why = part.get(self.trusts, "so that they may miss its value as well")
            size, error = max(
                (ratio.violation, ratio.violation_error), (ratio.imbalance, ratio.imbalance_error)
            )
            return (
                f"the features miss a part of where the policy goes (the ratio's equation is violated by {size:.2f} ± "
                f"{error:.2f} on held-out trajectories), {why}; try richer features"
            )
        return (
            f"the ratio is {self.flag}, with a mean of {ratio.mean_ratio:.3g} and a maximum of {ratio.max_ratio:.3g}; use other "
            "features, a ridge or a smaller discount"
        )


def diagnose_value(
    experience: Experience, estimand: Estimand, estimator: str, held_out: float
) -> ValueDiagnostics:
    """The diagnostics of an estimator on these data, as far as they need no replicates."""
    trusts, count = ESTIMATORS[estimator].trusts, len(experience.logs)
    if trusts == "data":
        return ValueDiagnostics(trusts, "ok", float(count), count, np.zeros(0))
    if trusts == "products":
        by_step = effective_trajectories(experience, estimand)
        # Weighted importance sampling uses the products of whole trajectories.
        step = len(by_step) - 1 if estimator == "wis" else middle_step(experience, estimand)
        left = float(by_step[step])
        # Where π is nearly μ, few trajectories are no fault of the products.
        thin = left < FEWEST_EFFECTIVE and left < 0.9 * count
        return ValueDiagnostics(trusts, "low support" if thin else "ok", left, count, by_step, step)
    transitions = experience.logs.num_transitions
    found = _diagnosed(experience, estimand, held_out)
    if found is None:
        return ValueDiagnostics(trusts, "unstable", float("nan"), transitions, np.zeros(0))
    left = found.pair_ess_share * transitions
    return ValueDiagnostics(trusts, found.flag, left, transitions, np.zeros(0), ratio=found)


def _diagnosed(experience: Experience, estimand: Estimand, held_out: float) -> Diagnostics | None:
    """The diagnostics of the ratio, once for all estimators; None if the data determine none."""

    def find() -> Diagnostics | None:
        problem = estimand.problem(experience)
        method, options = estimand.method(problem)
        try:
            return fit_and_diagnose(problem, method, options, held_out)[1]
        except InputError:
            return None

    return experience.once(("diagnosed", repr(estimand), held_out), find)
