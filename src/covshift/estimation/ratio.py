"""`estimate_ratio`: the covariate shift d_π/d_μ from logged data, with diagnostics."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, final

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator
from typing_extensions import TypedDict

from covshift.data.array_files import read_arrays
from covshift.errors import InputError
from covshift.estimation.behavior import BehaviorLike, Calibration
from covshift.estimation.diagnostics import (
    Diagnostics,
    DiagnosticsRecord,
    diagnose,
    projected_residual,
)
from covshift.estimation.display import as_html, make_frame, state_columns
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.features import (
    Features,
    FeaturesLike,
    load_features,
    of_labels,
    save_features,
)
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.inputs import Data, as_logs
from covshift.estimation.labels import Labels, as_label_list, objects
from covshift.estimation.misspecification import (
    UNCHECKED,
    Violation,
    find_imbalance,
    find_violation,
)
from covshift.estimation.policies import PolicyLike
from covshift.estimation.problem import FUNCTIONS, RatioFunction, RatioProblem
from covshift.files import (
    CHECKSUMS,
    ordinary_file,
    read_checksums,
    sha256,
    whole_file,
    write_checksums,
    write_text,
)
from covshift.report.plots import COLORS, house_style, panels
from covshift.schema import read_json
from covshift.validation import Vector

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT_VERSION = 1
SPEC, ARRAYS = "estimate.json", "estimate.npz"


def _check_version(version: int) -> int:
    if version != FORMAT_VERSION:
        raise ValueError(
            f"it has format version {version}, but this version of covshift reads {FORMAT_VERSION}"
        )
    return version


def _check_function(kind: str) -> str:
    if kind not in FUNCTIONS:
        raise ValueError(f"a ratio of the kind '{kind[:60]}' is not known")
    return kind


class SavedEstimate(TypedDict):
    """The content of `estimate.json`.

    Attributes:
        features: kind of the features.
        function: kind of the function of features.
        words: the text among their fields; estimates of older versions have none.
        labels: the labels of the states, if they have any.
    """

    format_version: Annotated[int, AfterValidator(_check_version)]
    method: str
    ratio_discount: float
    semantics: EpisodeSemantics
    discount: float
    features: str
    function: Annotated[str, AfterValidator(_check_function)]
    words: NotRequired[dict[str, str]]
    labels: NotRequired[list[Any] | None]
    diagnostics: DiagnosticsRecord


@final
@dataclass(frozen=True, eq=False, repr=False)
class RatioEstimate:
    """An estimated ratio: a function of states with its diagnostics.

    Attributes:
        method: name of the method that estimated it.
        ratio_discount: the ratio's discount γ̂.
        semantics: how episodes count: `continuing`, `visits` or `restart`.
        discount: γ of discounted visits; 1 for the ratio of the paper.
        features: features of the states.
        function: ĉ as a function of the features.
        diagnostics: whether to trust it.
        sample: ĉ at about 100 000 states of the data or fewer, for plots.
        calibration: how well μ is calibrated, if it was estimated.
        labels: the labels of the states, if the data have labels and not numbers.
    """

    method: str
    ratio_discount: float
    semantics: EpisodeSemantics
    discount: float
    features: Features
    function: RatioFunction
    diagnostics: Diagnostics
    sample: Vector
    calibration: Calibration | None = None
    labels: Labels | None = None

    def ratio(self, states: Any) -> Vector:
        """ĉ of each state in a batch; states are given as in the data, so by their labels if they have any.

        Raises:
            InputError: a label does not occur in the data.
        """
        given = np.asarray(states) if self.labels is None else self.labels.encode(states)
        return self.function.at(self.features(given))

    def mean_over(self, data: Data) -> float:
        """Mean ĉ over the states of other data.

        Over rollouts of π it is E_π[ĉ], which should be at least E_μ[ĉ] in a continuing problem, with restarts, or at γ̂ = 1 (B3);
        where visits are counted with γ̂ < 1 that order is usual, but an exact ratio can break it.
        """
        logs = as_logs(data)
        total = sum(
            float(self.ratio(logs.labelled(logs.states(rows))).sum()) for rows in logs.blocks()
        )
        return total / logs.num_transitions

    def save(self, folder: Path | str) -> Path:
        """Writes `estimate.json` and `estimate.npz` into a folder, for `load` to read."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        kind, made_of = save_features(self.features)
        arrays = {f"features.{name}": v for name, v in made_of.items()}
        arrays |= {f"function.{name}": v for name, v in self.function.arrays().items()}
        arrays["sample"] = self.sample
        # Only numbers are read from arrays, so words such as the name of a link stand in the JSON file.
        words = {
            name: str(arrays.pop(name)) for name, v in [*arrays.items()] if v.dtype.kind == "U"
        }
        spec: SavedEstimate = {
            "format_version": FORMAT_VERSION,
            "method": self.method,
            "ratio_discount": self.ratio_discount,
            "semantics": self.semantics,
            "discount": self.discount,
            "features": kind,
            "function": self.function.kind,
            "words": words,
            "labels": None if self.labels is None else list(self.labels.values),
            "diagnostics": self.diagnostics.record(),
        }
        with whole_file(path / ARRAYS) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        write_text(path / SPEC, json.dumps(spec, indent=2, ensure_ascii=False) + "\n")
        write_checksums(path, [SPEC, ARRAYS])
        return path

    @classmethod
    def load(cls, folder: Path | str, features: FeaturesLike = None) -> RatioEstimate:
        """Reads an estimate that `save` wrote, without running any code from its files.

        Args:
            folder: the folder it was saved in.
            features: the function of features, if the estimate used one.
        """
        path = Path(folder)
        if (path / CHECKSUMS).is_file():  # Older versions wrote none.
            for name, expected in read_checksums(path).items():
                if sha256(ordinary_file(path / name)) != expected:
                    raise InputError(
                        f"{path / name} is damaged: its hash differs from that in {CHECKSUMS}"
                    )
        spec = read_json(path / SPEC, SavedEstimate)
        arrays = read_arrays(path / ARRAYS)
        arrays |= {name: np.array(word) for name, word in spec.get("words", {}).items()}
        words = spec.get("labels")
        labels = None if words is None else Labels("state", tuple(as_label_list("state", words)))
        if labels is not None and callable(features) and not hasattr(features, "is_tabular"):
            features = of_labels(features, labels)
        try:
            return cls(
                spec["method"],
                spec["ratio_discount"],
                spec["semantics"],
                spec["discount"],
                load_features(spec["features"], _under("features", arrays), features),
                FUNCTIONS[spec["function"]](**_under("function", arrays)),
                Diagnostics.of_record(spec["diagnostics"]),
                arrays["sample"],
                labels=labels,
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path / ARRAYS} holds no estimate that fits {SPEC}: {error}"
            ) from error

    def to_frame(self, states: Any = None) -> Any:
        """A pandas frame of states and their ratios; by default of all states of a table.

        Raises:
            InputError: states are not numbered, so that they must be given.
        """
        if states is None and not self.features.is_tabular:
            raise InputError(
                "the states are vectors: give those to show, as in to_frame(logs.states()[:10])"
            )
        if states is None:
            numbers = np.arange(self.features.size)
            shown = numbers if self.labels is None else self.labels.decode(numbers)
            return make_frame({"state": shown, "ratio": self.ratio(shown)})
        given = (
            np.asarray(states) if self.labels is None else objects(as_label_list("state", states))
        )
        return make_frame({**state_columns("state", given), "ratio": self.ratio(given)})

    def __repr__(self) -> str:
        found = self.diagnostics
        kind = "states" if self.features.is_tabular else "features"
        return (
            f"RatioEstimate by {self.method}, γ̂ = {self.ratio_discount:g}, {self.semantics}, {self.features.size:,} {kind}\n"
            f"mean ratio {found.mean_ratio:.4g}, largest {found.max_ratio:.4g}, effective sample {found.ess_share:.1%}\n"
            f"flag: {found.flag}"
        )

    def _repr_html_(self) -> str:
        return as_html(repr(self).splitlines()[0], [self.diagnostics.record()])

    def plot(self) -> Figure:
        """Draws how ĉ is distributed over the data, and how much of the weight the largest ratios carry."""
        with house_style():
            figure, (left, right) = panels(2, width=9.0, height=3.4)
            low, high = float(self.sample.min()), float(self.sample.max())
            # Sixty bins need some room, which a ratio that is constant but for rounding does not have.
            room = 0.0 if high - low > 1e-9 * max(1.0, abs(high)) else 0.5
            left.hist(self.sample, bins=60, range=(low - room, high + room), color=COLORS[0])
            left.axvline(float(self.sample.mean()), color=COLORS[1], label="mean")
            left.set(xlabel="ĉ(s)", ylabel="states of the data", yscale="log")
            left.set_title(f"{self.method}, γ̂ = {self.ratio_discount:g}")
            left.legend()
            ordered = np.sort(self.sample)[::-1]
            weight = np.cumsum(ordered) / max(float(ordered.sum()), 1e-300)
            right.plot(np.arange(1, len(ordered) + 1) / len(ordered), weight, color=COLORS[0])
            right.plot([0, 1], [0, 1], color="0.6", linewidth=1)
            right.set(xlabel="share of states, largest ĉ first", ylabel="share of the weight")
            right.set_title(f"Effective sample: {self.diagnostics.ess_share:.1%}")
        return figure


def estimate_ratio(
    data: Data,
    policy: PolicyLike,
    *,
    ratio_discount: float = 1.0,
    method: str | None = None,
    semantics: EpisodeSemantics | None = None,
    discount: float = 1.0,
    features: FeaturesLike = None,
    behavior: BehaviorLike = None,
    held_out: float = 0.25,
    **options: Any,
) -> RatioEstimate:
    """Estimates c(s) = d_π(s)/d_μ(s), or its discounted form, from logged data.

    Args:
        data: anything that `as_logs` accepts.
        policy: the target policy π: a function of states, a table, or a name.
        ratio_discount: the ratio's discount γ̂; 1 gives d_π/d_μ itself, as in `evaluate_policy`. Below 1 the ratio is
            d̂_π/d_μ, which needs less data.
        method: `empirical`, `td`, `least-squares`, `matching`, `semi-gradient`, `simplex`, `neural`, or a registered
            one; by default `empirical` on tables and `least-squares` on features.
        semantics: `continuing`, `visits` or `restart`; by default `visits` if an episode terminated, else
            `continuing`.
        discount: γ of discounted visits from d₀, in the semantics `visits`; 1 for the ratio of the paper.
        features: None, a table of states × features, a function of states, or an object of
            `covshift.estimation.features`.
        behavior: μ if it was not logged: a policy, one probability per transition, or 'estimate'.
        held_out: share of the trajectories to hold out for the residual and the check of the features; 0 skips both.
        options: options of the method.

    Returns:
        The estimate with its diagnostics.

    Example:
        >>> from covshift.estimation import estimate_ratio, simulate_logs
        >>> from covshift.theory.examples import line_chain
        >>> problem = line_chain(4)
        >>> logs = simulate_logs(problem.mdp, problem.mu, 500, 20, np.random.default_rng(0))
        >>> estimate = estimate_ratio(logs, problem.pi, ratio_discount=0.9)
        >>> bool(np.abs(estimate.ratio(np.arange(4)) - problem.c_star(0.9)).max() < 0.1)
        True
    """
    experience = Experience.of(data, policy, features=features, behavior=behavior)
    problem = RatioProblem(experience, ratio_discount, experience.resolve(semantics), discount)
    name = problem.default_method if method is None else method
    function, diagnostics = fit_and_diagnose(problem, name, options, held_out)
    return RatioEstimate(
        name,
        ratio_discount,
        problem.semantics,
        discount,
        experience.features,
        function,
        diagnostics,
        _some_ratios(experience, function),
        experience.calibration,
        experience.logs.state_labels,
    )


def fit_and_diagnose(
    problem: RatioProblem, method: str, options: dict[str, Any], held_out: float = 0.25
) -> tuple[RatioFunction, Diagnostics]:
    """The ratio that a method estimates, with its diagnostics; see `estimate_ratio`."""
    function = fit_ratio(problem, method, **options)
    return function, diagnose(problem, function, *_hold_out(problem, method, held_out, options))


def _hold_out(
    problem: RatioProblem, method: str, share: float, options: dict[str, Any]
) -> tuple[float, Violation, Violation]:
    """The residual, the violation and the imbalance on trajectories spread evenly over the data, for a fit to the others."""
    count = len(problem.experience.logs)
    if not 0.0 <= share < 1.0:
        raise InputError(f"held_out must lie in [0, 1), but it is {share}")
    if count < 2 or share == 0.0:
        return float("nan"), UNCHECKED, UNCHECKED
    tested = np.zeros(count, dtype=bool)
    tested[np.unique(np.linspace(0, count - 1, max(1, round(share * count))).astype(int))] = True
    try:
        rest = replace(problem, experience=problem.experience.select(~tested))
        test = replace(problem, experience=problem.experience.select(tested))
        with warnings.catch_warnings():
            # What there is to warn of was said for the fit to the whole data.
            warnings.simplefilter("ignore", UserWarning)
            function = fit_ratio(rest, method, **options)
        residual = projected_residual(test, function)
        return residual, find_violation(rest, test, function), find_imbalance(test, function)
    except InputError:
        # A part of the data may not determine a ratio although the whole does.
        return float("nan"), UNCHECKED, UNCHECKED


def _some_ratios(experience: Experience, function: RatioFunction, most: int = 100_000) -> Vector:
    every = max(1, experience.logs.num_transitions // most)
    return np.concatenate([function.at(s.x_tm1[::every]) for s in experience.samples()])


def _under(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(f"{prefix}."): value
        for name, value in arrays.items()
        if name.startswith(f"{prefix}.")
    }
