"""Estimates of a value as records, tables and pictures."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.diagnostics import Flag
from covshift.estimation.display import as_html, make_frame
from covshift.estimation.estimand import Estimand
from covshift.estimation.intervals import bootstrap_interval
from covshift.estimation.selection import Selection
from covshift.estimation.value_diagnostics import ValueDiagnostics
from covshift.report.plots import COLORS, house_style, panels
from covshift.validation import Vector

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True, eq=False, repr=False)
class ValueEstimate:
    """An estimated value with its interval, and whether to believe it.

    Attributes:
        estimator: name of the estimator.
        value: the estimate.
        low: lower end of the interval; NaN if none was asked for.
        high: upper end of the interval.
        level: confidence level of the interval.
        estimand: what was asked for.
        replicates: the estimates from the bootstrap's replicates; NaN for a replicate that has no answer.
        seconds: time the estimate took.
        pairing: number of trajectories and seed of the bootstrap; replicates of estimates that share them are paired.
        diagnostics: whether to believe it.
        selection: what `estimator="auto"` compared; None otherwise.
    """

    estimator: str
    value: float
    low: float
    high: float
    level: float
    estimand: Estimand
    replicates: Vector
    seconds: float
    pairing: tuple[int, int]
    diagnostics: ValueDiagnostics
    selection: Selection | None = None

    @property
    def flag(self) -> Flag:
        """`ok`, or what speaks against the estimate; see `ValueDiagnostics`."""
        return self.diagnostics.flag

    @property
    def verdict(self) -> str:
        """Whether to believe the estimate, and why, in words."""
        return self.diagnostics.verdict

    @property
    def standard_error(self) -> float:
        """Standard deviation of the bootstrap's replicates."""
        found = self.replicates[np.isfinite(self.replicates)]
        return float(found.std(ddof=1)) if len(found) > 1 else float("nan")

    @property
    def failed_replicates(self) -> int:
        """The number of replicates that have no answer and are left out of the interval."""
        return int(np.isnan(self.replicates).sum())

    def difference(self, other: ValueEstimate) -> Difference:
        """This value minus another one, with a paired interval.

        Both must come from the same trajectories with the same seed, level and number of replicates. Then replicate i of
        one and of the other weigh the trajectories alike, and what moves both cancels.

        Raises:
            InputError: the two are not paired, or answer different questions.
        """
        asked, other_asked = self.estimand.describe(), other.estimand.describe()
        if asked != other_asked:
            raise InputError(
                f"one estimate is of {asked} and the other of {other_asked}: ask both the same question"
            )
        paired = self.pairing == other.pairing and len(self.replicates) == len(other.replicates)
        if not paired or not len(self.replicates) or self.level != other.level:
            raise InputError(
                "the replicates of the two estimates are not paired: estimate both from the same trajectories, with the "
                "same seed, interval and replicates"
            )
        replicates = self.replicates - other.replicates
        low, high = bootstrap_interval(replicates, self.level, self.pairing[0])
        flags: dict[str, Flag] = {"new": self.flag, "old": other.flag}
        doubts: dict[str, Flag] = {policy: flag for policy, flag in flags.items() if flag != "ok"}
        return Difference(self, other, self.value - other.value, low, high, replicates, doubts)

    def to_frame(self) -> Any:
        """A pandas frame with one row, the record."""
        return make_frame({name: [value] for name, value in self.record().items()})

    def _repr_html_(self) -> str:
        return as_html(self.estimand.describe(), [self.record()])

    def record(self) -> dict[str, Any]:
        """The estimate as plain values, for tables and JSON."""
        return {
            "estimator": self.estimator,
            "objective": self.estimand.objective,
            "estimand": self.estimand.describe(),
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "standard_error": self.standard_error,
            "seconds": self.seconds,
            "flag": self.flag,
            "effective_sample": None if np.isnan(n := self.diagnostics.effective_sample) else n,
            "violation": self.diagnostics.violation,
            "verdict": self.verdict,
        }

    def __str__(self) -> str:
        return f"{self.estimator}: {self.value:.4g}{self._interval()}"

    def __repr__(self) -> str:
        level = "" if np.isnan(self.low) else f" at {self.level:.0%}"
        asked = self.estimand.describe()
        return f"{self}{level}, {asked}\n{self.flag}: {self.verdict}"

    def _interval(self) -> str:
        return "" if np.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"


@final
@dataclass(frozen=True, eq=False)
class Difference:
    """The difference of two estimated values, with its paired interval.

    Attributes:
        new: the estimate of the first value.
        old: the estimate that is subtracted.
        value: the difference.
        low: lower end of the interval, of the level that both estimates have.
        high: upper end of the interval.
        replicates: the differences of the bootstrap's replicates.
        doubts: why the difference should not be relied on, by policy; empty if no diagnostic warns.
    """

    new: ValueEstimate
    old: ValueEstimate
    value: float
    low: float
    high: float
    replicates: Vector
    doubts: dict[str, Flag] = field(default_factory=dict)

    def to_frame(self) -> Any:
        """A pandas frame with a row for the new policy, one for the old policy, and one for the difference."""
        rows = {"new": self.new, "old": self.old, "difference": self}
        columns = {
            name: [getattr(row, name) for row in rows.values()] for name in ("value", "low", "high")
        }
        return make_frame({"policy": list(rows), **columns})

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return as_html(self.verdict, self.to_frame().to_dict("records"))

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.low <= 0.0 <= self.high

    @property
    def verdict(self) -> str:
        """What the difference says, in words."""
        interval = f"[{self.low:.4g}, {self.high:.4g}] at {self.new.level:.0%}"
        if self.is_clear:
            word = "better" if self.value > 0 else "worse"
            text = f"The new policy is {word}: the difference is {self.value:.4g} {interval}."
        else:
            text = f"The data do not tell which policy is better: the difference is {self.value:.4g} {interval}."
        if not self.doubts:
            return text
        why = ", ".join(f"{flag} for the {policy} policy" for policy, flag in self.doubts.items())
        return f"Do not rely on this: the estimate is flagged {why}, so the interval may miss the truth. {text}"

    def __str__(self) -> str:
        return self.verdict


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several estimates of one value, some of which may have failed.

    Attributes:
        estimates: one for each estimator that could answer.
        failures: by name, why the others could not.
        truth: the true value, if it is known.
    """

    estimates: list[ValueEstimate]
    failures: dict[str, str]
    truth: float | None = None

    def __getitem__(self, name: str) -> ValueEstimate:
        for estimate in self.estimates:
            if estimate.estimator == name:
                return estimate
        raise InputError(self.failures.get(name, f"'{name}' was not among the estimators"))

    @property
    def groups(self) -> list[list[ValueEstimate]]:
        """The estimates, with those together that are the same number in the data and in every replicate.

        On a table `dr`, `fqe` and the DICE family are one number by algebra, so their agreement is no evidence.
        """
        made: list[list[ValueEstimate]] = []
        for estimate in self.estimates:
            same = next((group for group in made if _is_same(group[0], estimate)), None)
            if same is None:
                made.append([estimate])
            else:
                same.append(estimate)
        return made

    def __repr__(self) -> str:
        lines = [self.estimates[0].estimand.describe()] if self.estimates else []
        for group in self.groups:
            names = ", ".join(estimate.estimator for estimate in group)
            first = group[0]
            lines.append(f"{first.value:<8.4g}{first._interval():22} {first.flag:12} {names}")
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.failures.items())])

    def plot(self) -> Figure:
        """Draws one row per different estimate: its value, its interval, and the true value if it is known."""
        groups = self.groups
        with house_style():
            height = 1.2 + 0.32 * len(groups)
            figure, (axes,) = panels(1, width=7.5, height=height)
            rows = np.arange(len(groups))[::-1]
            for row, (estimate, *_) in zip(rows, groups, strict=True):
                color = "0.55" if estimate.estimator == "behavior" else COLORS[0]
                if not np.isnan(estimate.low):
                    axes.plot([estimate.low, estimate.high], [row, row], color=color, linewidth=2)
                axes.plot(estimate.value, row, "o", color=color)
            if self.truth is not None:
                axes.axvline(self.truth, color=COLORS[1], label="true value")
                axes.legend(loc="lower right")
            names = [", ".join(one.estimator for one in group) for group in groups]
            axes.set_yticks(rows, names)
            axes.set_xlim(*_limits(self))
            asked = self.estimates[0].estimand.describe() if self.estimates else ""
            axes.set(xlabel=asked, ylim=(-0.7, len(rows) - 0.3))
        return figure

    def to_frame(self) -> Any:
        """A pandas frame with one row per estimator."""
        rows = [estimate.record() for estimate in self.estimates]
        return make_frame({name: [row[name] for row in rows] for name in rows[0]} if rows else {})

    def _repr_html_(self) -> str:
        rows = [estimate.record() for estimate in self.estimates]
        failed = [{"estimator": name, "estimand": why} for name, why in self.failures.items()]
        return as_html("Estimates of one value", [*rows, *failed])

    def write_csv(self, path: Path | str) -> Path:
        """Writes one line per estimator."""
        path = Path(path)
        rows = [estimate.record() for estimate in self.estimates]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=[*rows[0], "truth"] if rows else ["truth"])
            writer.writeheader()
            writer.writerows(row | {"truth": self.truth} for row in rows)
        return path


def _is_same(one: ValueEstimate, other: ValueEstimate) -> bool:
    """Whether two estimates are equal up to rounding, and so are all of their replicates."""
    pairs = np.column_stack([np.append(e.value, e.replicates) for e in (one, other)])
    return bool(np.allclose(pairs[:, 0], pairs[:, 1], rtol=1e-5, atol=1e-9, equal_nan=True))


def _limits(comparison: Comparison) -> tuple[float, float]:
    """Limits of the axis; an outlier may lie outside, so that the other estimates can be told apart."""
    ends = [
        end
        for estimate in comparison.estimates
        for end in (estimate.low, estimate.high, estimate.value)
        if np.isfinite(end)
    ]
    if comparison.truth is not None:
        ends.append(comparison.truth)
    values = np.array(ends) if ends else np.zeros(1)
    first, last = np.percentile(values, [5, 95])
    room = 0.6 * max(last - first, 1e-9, 0.05 * abs(last))
    return float(max(values.min(), first - room) - 0.1 * room), float(
        min(values.max(), last + room) + 0.1 * room
    )
