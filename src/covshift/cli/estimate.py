"""`covshift estimate ratio | value`."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from covshift.cli.arguments import optional
from covshift.errors import InputError

if TYPE_CHECKING:
    from covshift.estimation import Logs

MOST_WAVES = 100_000
"""The most random features; the sums of their products would take 80 GB."""


@dataclass(frozen=True)
class ColumnOptions:
    """Which column of a CSV or Parquet file holds what."""

    state: str = "state"
    """Column of the state, or several, as in x,y."""

    action: str = "action"
    """Column of the action: whole numbers from 0, or words."""

    reward: str = "reward"
    """Column of the reward received after the action."""

    terminated: str = "terminated"
    """Column that says whether the episode ended with the row; 'never' if no episode ends."""

    next_state: Annotated[str | None, optional("COLUMN")] = None
    """Column or columns of the state after the action; by default the state's with next_ before them or, without such columns, the state of the next row."""

    trajectory: Annotated[str | None, optional("COLUMN")] = None
    """Column that says which trajectory a row belongs to; by default trajectory or, without that column, a trajectory ends where terminated or truncated says so."""

    propensity: Annotated[str | None, optional("COLUMN")] = None
    """Column of μ(a|s), the probability with which the logged action was taken; by default propensity or mu."""

    truncated: Annotated[str | None, optional("COLUMN")] = None
    """Column that says whether the record was cut off after the row."""

    is_initial: Annotated[str | None, optional("COLUMN")] = None
    """Column that says whether the state is a draw from the start distribution; by default the first state of each trajectory is."""

    num_actions: Annotated[int | None, optional("INT")] = None
    """Number of actions of the environment; by default one more than the largest in the data."""

    action_labels: Annotated[str | None, optional("WORD,…")] = None
    """All actions that are words, as in left,right,stay; by default those in the data."""

    def given(self) -> dict[str, Any]:
        """The names that differ from the usual ones, as `as_logs` takes them."""
        given: dict[str, Any] = {
            name: value
            for name, value in vars(self).items()
            if value != getattr(ColumnOptions, name)
        }
        for name in ("state", "next_state", "action_labels"):
            if name in given:
                given[name] = [part.strip() for part in given[name].split(",")]
        if given.get("terminated") == "never":
            given["terminated"] = False
        return given

    def read(self, data: str) -> Logs:
        """The logs in a file, a dataset's folder, or a Minari dataset."""
        from covshift.estimation import as_logs

        return as_logs(data, **self.given())


Columns = Annotated[ColumnOptions, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class Ratio:
    """Estimate the covariate shift c(s) = d_π(s)/d_μ(s) from a dataset, with diagnostics: how much more often a target policy π visits each state than the data of the behavior policy μ show it."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A CSV or Parquet file, a folder of Parquet files, a dataset's folder, or minari:NAME."""

    policy: str
    """Target policy π: uniform | file:P.npy | file:P.csv | run:DIR,epsilon=E | module:name."""

    out: Path
    """Folder for the results: estimate.json and estimate.npz, which RatioEstimate.load reads, and ratio.png."""

    ratio_discount: float = 1.0
    """The ratio's discount γ̂: 1 gives d_π/d_μ itself; below 1 the correction reaches back about 1/(1 - γ̂) steps and needs less data."""

    method: Annotated[str | None, optional("METHOD")] = None
    """empirical | td | least-squares | matching | semi-gradient | simplex | neural; by default empirical on tables, least-squares on features."""

    semantics: Annotated[
        Literal["continuing", "visits", "restart"] | None, optional("continuing|visits|restart")
    ] = None
    """What the ratio means with episodes: continuing: there are none; visits: expected visits per episode; restart: the next episode follows the last as a transition. By default visits if an episode terminated, else continuing."""

    features: str = "auto"
    """auto: a table if states are whole numbers or one-hot vectors, else 200 random Fourier features; affine: a constant and the standardized observation; fourier:K: K random Fourier features; module:function: your own."""

    behavior: Annotated[str | None, optional("POLICY|estimate")] = None
    """Behavior policy μ to use instead of the logged probabilities: a policy as in --policy, or 'estimate', which fits it to the data. By default the logged ones."""

    columns: Columns = field(default_factory=ColumnOptions)

    def run(self, folder: Path) -> None:
        """Writes the estimate into a folder and prints its diagnostics."""
        from covshift.estimation import estimate_ratio
        from covshift.estimation.neural import NUM_UPDATES

        logs = self.columns.read(self.data)
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

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A CSV or Parquet file, a folder of Parquet files, a dataset's folder, or minari:NAME."""

    policy: str
    """Policy π to evaluate: uniform | file:P.npy | file:P.csv | run:DIR,epsilon=E | module:name."""

    out: Annotated[Path | None, optional("PATH")] = None
    """Folder for values.csv, values.json and values.png; by default nothing is written."""

    estimators: Annotated[tuple[str, ...], optional("NAME …")] = ()
    """mis | mis-sn | dr | dr-cf | fqe | pdis | wis | wpdis | dualdice | gendice | gradientdice | mwl | behavior; by default all that can answer for the objective but dr-cf, which takes five times as long as dr."""

    objective: Literal["discounted", "average"] = "discounted"
    """discounted: expected discounted return E[Σ γᵗ r] from the initial states; average: mean reward per step in the long run."""

    discount: float = 0.99
    """The value's discount γ: rewards count over about 1/(1 - γ) steps, and 1 gives the whole return of an episode."""

    ratio_discount: float = 1.0
    """The ratio's discount γ̂, for estimators of the average reward that use a ratio; below 1 it needs less data and is biased."""

    features: str = "auto"
    """auto | affine | fourier:K | module:function, as in covshift estimate ratio."""

    behavior: Annotated[str | None, optional("POLICY|estimate")] = None
    """Behavior policy μ to use instead of the logged probabilities: a policy as in --policy, or 'estimate', which fits it to the data. By default the logged ones."""

    interval: float = 0.95
    """Confidence level of the intervals, between 0 and 1; a larger one gives wider intervals."""

    replicates: int = 200
    """Bootstrap replicates over trajectories; more of them give steadier intervals and take longer; at most 1,000,000."""

    seed: int = 0
    """Seed of the bootstrap."""

    engine: Literal["local", "ray"] = "local"
    """Where sums over the data are computed: local, in this process; ray, as Ray tasks over the shards of a dataset or the files of a Parquet folder."""

    ray_address: Annotated[str | None, optional("HOST:PORT")] = None
    """Address of a Ray cluster that shares the data's folder; by default Ray starts on this machine."""

    columns: Columns = field(default_factory=ColumnOptions)

    def run(self, folder: Path | None) -> None:
        """Prints one line per estimator, and why some could not answer; also writes them if a folder is given."""
        from covshift.estimation import compare_estimators
        from covshift.estimation.estimators import estimators_of

        names = self.estimators or estimators_of(self.objective)
        with (
            warnings.catch_warnings(record=True) as noted,
            self._logs() as logs,
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
        level = f"{100 * self.interval:g} % interval"
        print(f"{'estimator':14} {'value':11} {level:22} flag")
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

    def _logs(self) -> AbstractContextManager[Logs]:
        from covshift.estimation.cluster import logs_on_ray

        if self.engine == "ray":
            return logs_on_ray(self.data, address=self.ray_address, **self.columns.given())
        if self.ray_address is not None:
            raise InputError(f"--ray-address {self.ray_address} needs --engine ray")
        return nullcontext(self.columns.read(self.data))


@dataclass(frozen=True)
class Estimate:
    """Estimate ratios and policy values from logged data."""

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Ratio, tyro.conf.subcommand("ratio")]
        | Annotated[Value, tyro.conf.subcommand("value")]
    ]

    def extras(self) -> tuple[str, ...]:
        """PyTorch, for the one method that is a network, and Ray, if it is asked for."""
        torch = ("torch",) if getattr(self.action, "method", None) == "neural" else ()
        return (*torch, *(("ray",) if getattr(self.action, "engine", None) == "ray" else ()))

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
    from covshift.validation import check_count

    kind, separator, rest = text.partition(":")
    if text == "auto":
        return None
    if text == "affine":
        return Affine.fit(logs)
    if kind == "fourier" and re.fullmatch("[0-9]{1,20}", rest):
        count = check_count("the K of fourier:K", int(rest), MOST_WAVES)
        return RandomFourier.fit(logs, count, np.random.default_rng(0))
    if separator and kind != "fourier" and rest:
        return import_function("features", text)
    raise InputError(f"'{text}' names no features; say auto | affine | fourier:K | module:function")
