"""`covshift estimate ratio | value`."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from covshift.errors import InputError

if TYPE_CHECKING:
    from covshift.estimation import Logs


@dataclass(frozen=True)
class Ratio:
    """Estimate the covariate shift d_π/d_μ from a dataset, with diagnostics."""

    data: Annotated[str, tyro.conf.Positional]
    """The dataset's folder, or minari:NAME."""

    policy: str
    """Target policy π: uniform | file:P.npy | run:DIR,epsilon=E | module:function."""

    out: Path
    """Folder for the results: estimate.json and estimate.npz, which RatioEstimate.load reads, and ratio.png."""

    ratio_discount: float = 1.0
    """The ratio's discount γ̂: 1 gives d_π/d_μ itself; below 1 the correction reaches back about 1/(1 - γ̂) steps and needs less data."""

    method: str | None = None
    """empirical | td | least-squares | matching | semi-gradient | simplex | neural; by default empirical on tables, least-squares on features."""

    semantics: Literal["continuing", "visits", "restart"] | None = None
    """How episodes count; by default visits if an episode terminated, else continuing."""

    features: str = "auto"
    """auto: a table if states are whole numbers or one-hot vectors, else 200 random Fourier features; affine: a constant and the standardized observation; fourier:K: K random Fourier features; module:function: your own."""

    behavior: str | None = None
    """Behavior policy μ to use instead of the logged probabilities: a policy's name, or 'estimate'."""

    def run(self, folder: Path) -> None:
        """Writes the estimate into a folder and prints its diagnostics."""
        from covshift.estimation import as_logs, estimate_ratio
        from covshift.estimation.neural import NUM_UPDATES

        logs = as_logs(self.data)
        with ExitStack() as stack:
            options: dict[str, Any] = {}
            if self.method == "neural":
                fits = min(2, len(logs))  # The second one is for the held-out residual.
                options["progress"] = stack.enter_context(_counter("updates", fits * NUM_UPDATES))
            estimate = estimate_ratio(
                logs,
                self.policy,
                ratio_discount=self.ratio_discount,
                method=self.method,
                semantics=self.semantics,
                features=_features(self.features, logs),
                behavior=self.behavior,
                **options,
            )
        estimate.save(folder)
        estimate.plot().savefig(folder / "ratio.png", dpi=120)
        if estimate.calibration is not None:
            estimate.calibration.plot().savefig(folder / "calibration.png", dpi=120)
        for name, value in estimate.diagnostics.record().items():
            shown = f"{value:.4g}" if isinstance(value, float) else value
            print(f"{name.replace('_', ' '):20} {'unknown' if value is None else shown}")


@dataclass(frozen=True)
class Value:
    """Estimate what a policy is worth from a dataset, by several estimators with intervals."""

    data: Annotated[str, tyro.conf.Positional]
    """The dataset's folder, or minari:NAME."""

    policy: str
    """Policy π to evaluate: uniform | file:P.npy | run:DIR,epsilon=E | module:function."""

    out: Path | None = None
    """Folder for values.csv, values.json and values.png; by default nothing is written."""

    estimators: tuple[str, ...] = ()
    """mis | mis-sn | dr | dr-cf | fqe | pdis | wis | wpdis | dualdice | gendice | gradientdice | mwl | behavior; by default all that can answer for the objective but dr-cf, which takes five times as long as dr."""

    objective: Literal["discounted", "average"] = "discounted"
    """discounted: E[Σ γᵗ r] from the initial states; average: mean reward per step in the long run."""

    discount: float = 0.99
    """γ of the discounted value; 1 gives the return of an episode."""

    ratio_discount: float = 1.0
    """γ̂ of the ratio, for estimators of the average reward that use one."""

    features: str = "auto"
    """auto | affine | fourier:K | module:function, as in covshift estimate ratio."""

    behavior: str | None = None
    """Behavior policy μ to use instead of the logged probabilities: a policy's name, or 'estimate'."""

    interval: float = 0.95
    """Confidence level of the intervals."""

    replicates: int = 200
    """Number of bootstrap replicates over trajectories."""

    seed: int = 0
    """Seed of the bootstrap."""

    def run(self, folder: Path | None) -> None:
        """Prints one line per estimator, and why some could not answer; also writes them if a folder is given."""
        from covshift.estimation import as_logs, compare_estimators
        from covshift.estimation.estimators import estimators_of

        logs = as_logs(self.data)
        names = self.estimators or estimators_of(self.objective)
        with (
            warnings.catch_warnings(record=True) as noted,
            _counter("estimators", len(names)) as advance,
        ):
            warnings.simplefilter("default")
            found = compare_estimators(
                logs,
                self.policy,
                estimators=names,
                objective=self.objective,
                discount=self.discount,
                ratio_discount=self.ratio_discount,
                features=_features(self.features, logs),
                behavior=self.behavior,
                interval=self.interval,
                replicates=self.replicates,
                seed=self.seed,
                progress=advance,
            )
        for message in dict.fromkeys(str(warning.message) for warning in noted):
            print(f"Note: {message}.", file=sys.stderr)
        if not found.estimates:
            raise InputError("; ".join(f"{name}: {why}" for name, why in found.failures.items()))
        print(found.estimates[0].estimand.describe())
        for estimate, *same in found.groups:
            interval = f"[{estimate.low:.4g}, {estimate.high:.4g}]"
            shown = ", ".join(one.estimator for one in (estimate, *same))
            print(f"{shown:14} {estimate.value:<11.4g} {interval:22} {estimate.flag}")
            print(f"{'':14} {estimate.verdict}")
        for name, why in found.failures.items():
            print(f"{name:14} {why}")
        if folder is not None:
            found.write_csv(folder / "values.csv")
            records = [estimate.record() for estimate in found.estimates]
            text = json.dumps({"estimates": records, "failures": found.failures}, indent=2)
            (folder / "values.json").write_text(text + "\n", encoding="utf-8")
            found.plot().savefig(folder / "values.png", dpi=120)


@dataclass(frozen=True)
class Estimate:
    """Estimate ratios and policy values from logged data."""

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Ratio, tyro.conf.subcommand("ratio")]
        | Annotated[Value, tyro.conf.subcommand("value")]
    ]

    def extras(self) -> tuple[str, ...]:
        """PyTorch, for the one method that is a network."""
        return ("torch",) if getattr(self.action, "method", None) == "neural" else ()

    def run(self) -> None:
        """Runs the subcommand; its folder gets all of its files or, if it fails or is interrupted, none."""
        from covshift.files import whole_folder

        if self.action.out is None:
            self.action.run(None)
            return
        with whole_folder(self.action.out.resolve(), existing=True) as folder:
            self.action.run(folder)
        hint = " (read it with covshift.estimation.RatioEstimate.load)"
        print(f"The results: {self.action.out}{hint if isinstance(self.action, Ratio) else ''}")


def _counter(label: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Shows progress on the standard error, so that the standard output holds only results."""
    from rich.console import Console

    from covshift.progress import counter

    return counter(Console(stderr=True), label, total)


def _features(text: str, logs: Logs) -> Any:
    """The features that an option's text names."""
    import numpy as np

    from covshift.data.policies import import_function
    from covshift.estimation import Affine, RandomFourier

    kind, separator, rest = text.partition(":")
    if text == "auto":
        return None
    if text == "affine":
        return Affine.fit(logs)
    if kind == "fourier" and rest.isdigit() and int(rest) > 0:
        return RandomFourier.fit(logs, int(rest), np.random.default_rng(0))
    if separator and kind != "fourier" and rest:
        return import_function("features", text)
    raise InputError(f"'{text}' names no features; say auto | affine | fourier:K | module:function")
