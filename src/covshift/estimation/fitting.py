"""Methods that estimate a ratio: each takes a problem and gives a function of states."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.experience import Experience, Semantics
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.moments import RatioMoments, solve
from covshift.learners.linear_ratio import LinearRatio
from covshift.learners.schedules import robbins_monro
from covshift.rules import discounted_cop_target
from covshift.theory.chain import as_dense
from covshift.theory.projections import project_weighted_simplex
from covshift.theory.simulation import Transition
from covshift.theory.validation import Dense, Vector, check_count, check_discount


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


Method: TypeAlias = Callable[..., RatioFunction]
Weighting: TypeAlias = Literal["uniform", "inverse"]

_target: Callable[[float, float, float], float] = cast(Any, discounted_cop_target)
"""The rule on plain numbers, which a loop over transitions does fastest."""

METHODS: dict[str, Method] = {}
"""Ratio methods by name; `register_method` adds one."""

FUNCTIONS: dict[str, Callable[..., RatioFunction]] = {
    TableRatio.kind: TableRatio,
    LinearRatioFunction.kind: LinearRatioFunction,
}
"""What a saved ratio is made of again, by its kind."""


def register_method(name: str, method: Method) -> None:
    """Makes `estimate_ratio(…, method=name)` call a function of a `RatioProblem` and its options."""
    METHODS[name] = method


def fit_empirical(problem: RatioProblem) -> TableRatio:
    """The exact ratio of the empirical model: tables only, no μ needed but through counts."""
    experience = _tabular("empirical", problem)
    model = EmpiricalModel.of(experience)
    c = model.ratio(problem.semantics, problem.ratio_discount, problem.discount)
    return TableRatio(model.scatter(c, experience.features.size, 1.0))


def fit_td(
    problem: RatioProblem,
    *,
    num_steps: int = 1,
    passes: int = 1,
    step_size: float = 1.0,
    halfway: float | None = None,
    seed: int = 0,
) -> TableRatio:
    """Tabular COP-TD (γ̂ = 1) or discounted COP-TD, transition by transition; eq. (4), (6), B4.

    At γ̂ = 1 without the target 1 of initial states every step is homogeneous in c, so one division by the
    mean at the end is normalized COP-TD.

    Args:
        problem: what to estimate.
        num_steps: n of the n-step target.
        passes: how often to go through the data.
        step_size: the first step size of a state.
        halfway: updates of a state after which the step has halved; by default 2/(1 - γ̂) between 10 and
            1000, and 100 at γ̂ = 1.
        seed: of the draw of trajectories where they are weighted.
    """
    experience = _tabular("td", problem)
    check_count("num_steps", num_steps)
    check_count("passes", passes)
    discount = problem.ratio_discount
    horizon = 100.0 if discount == 1.0 else min(max(2.0 / (1.0 - discount), 10.0), 1000.0)
    steps = robbins_monro(step_size, horizon if halfway is None else halfway)
    c, visits = [1.0] * experience.features.size, [0] * experience.features.size
    sizes = [float(steps(0))]
    window: deque[tuple[int, float, bool]] = deque(maxlen=num_steps)
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        for s_tm1, rho_tm1, s_t, is_initial in _arrivals(problem, rng):
            if s_t < 0:
                window.clear()
                continue
            window.append((s_tm1, rho_tm1, is_initial))
            target = c[window[0][0]]
            for _, rho, starts in window:
                target = 1.0 if starts else _target(target, rho, discount)
            count = visits[s_t]
            if count == len(sizes):
                sizes.append(float(steps(count)))
            c[s_t] += sizes[count] * (target - c[s_t])
            visits[s_t] += 1
    table, seen = np.array(c), np.array(visits)
    if problem.has_mean_one and discount == 1.0:
        table = table / (seen @ table / seen.sum())
    return TableRatio(table)


def fit_least_squares(
    problem: RatioProblem,
    *,
    ridge: float = 0.0,
    weighting: Weighting = "uniform",
    floor: float = 1e-2,
    iterations: int = 50,
    tolerance: float = 1e-8,
) -> TableRatio | LinearRatioFunction:
    """The fixed point of the projected equation, without a step size.

    Under `inverse` weighting (B1) the error at s counts 1/max(ĉ(s), floor), solved anew until ĉ does not
    change; where E_μ[c] = 1 the result is rescaled to that mean. On a table any weighting has the same
    fixed point.

    Args:
        problem: what to estimate.
        ridge: added to the diagonal of the mean matrix.
        weighting: of the errors.
        floor: of ĉ in the weights.
        iterations: at most so many solves under `inverse` weighting.
        tolerance: change of the weights, relative to their size, that ends them.
    """
    w = _solve_ratio(problem, RatioMoments.of(problem.experience), ridge)
    if problem.experience.is_tabular:
        return TableRatio(w)
    if weighting == "uniform":
        return LinearRatioFunction(w)
    if weighting != "inverse":
        raise InputError(f"weighting must be uniform or inverse, but it is {weighting}")
    for _ in range(iterations):
        current = LinearRatioFunction(w)
        moments = RatioMoments.of(
            problem.experience, lambda x: 1.0 / np.maximum(current.at(x), floor)  # noqa: B023
        )  # fmt: skip
        following = _solve_ratio(problem, moments, ridge)
        change = np.abs(following - w).max()
        # Half a step damps the cycle of two that full steps can fall into.
        w = 0.5 * (w + following)
        if change <= tolerance * max(1.0, np.abs(w).max()):
            break
    return _rescaled(problem, LinearRatioFunction(w))


def fit_semi_gradient(
    problem: RatioProblem,
    *,
    step_size: float = 0.1,
    halfway: float = 1000.0,
    passes: int = 5,
    weighting: Weighting = "uniform",
    floor: float = 1e-2,
    seed: int = 0,
) -> LinearRatioFunction:
    """Semi-gradient discounted COP-TD with features, transition by transition.

    Args:
        problem: what to estimate.
        step_size: the first step, over the mean of ‖φ‖².
        halfway: updates after which the step has halved.
        passes: how often to go through the data.
        weighting: of the errors, as in `fit_least_squares`.
        floor: of ĉ in the weights.
        seed: of the draw of trajectories where they are weighted.
    """
    if problem.experience.is_tabular:
        raise InputError("semi-gradient needs features: give `features`, or use method='td'")
    check_count("passes", passes)
    x_tm1, x_t = (
        np.concatenate([getattr(sample, name) for sample in problem.experience.samples()])
        for name in ("x_tm1", "x_t")
    )
    size = len(x_tm1)
    phi = np.concatenate([x_tm1, x_t])
    rhos = problem.discount * np.concatenate([s.rho_tm1 for s in problem.experience.samples()])
    rng = np.random.default_rng(seed)
    # Each row is a state of its own with one action, so that a transition keeps its own ρ.
    learner = LinearRatio(
        phi,
        np.concatenate([rhos, np.ones(size)])[:, None],
        problem.ratio_discount,
        robbins_monro(step_size / float((x_tm1**2).sum(axis=1).mean()), halfway),
        weight_floor=floor if weighting == "inverse" else None,
        initial_weights=_start_at_one(x_tm1),
    )
    state = learner.init(1)
    action, reward = np.zeros(1, dtype=np.int64), np.zeros(1)
    for _ in range(passes):
        for row_tm1, _, row_t, is_initial in _arrivals(problem, rng, by_row=True):
            if row_t >= 0:
                learner.step(
                    state,
                    Transition(
                        np.array([row_tm1]), action, reward, np.array([row_t]), np.array([is_initial])
                    ),
                )  # fmt: skip
    found = LinearRatioFunction(state.w[0])
    scale_is_lost = weighting == "inverse" or problem.ratio_discount == 1.0
    return _rescaled(problem, found) if scale_is_lost else found


def fit_simplex(
    problem: RatioProblem, *, step_size: float = 0.5, iterations: int = 500, tolerance: float = 1e-9
) -> LinearRatioFunction:
    """Expected semi-gradient steps, each projected onto W_{Φ,d_μ}: ĉ ≥ 0 with mean 1 over the data.

    Some problems oscillate (E17); then the last weights are returned, and the residual tells.

    Args:
        problem: what to estimate; `continuing` or `restart`, since E_μ[c] = 1 is imposed.
        step_size: over the largest eigenvalue of the features' Gram matrix.
        iterations: at most so many projections, each a quadratic program over the distinct states.
        tolerance: change of the weights that ends them.
    """
    experience = problem.experience
    if experience.is_tabular:
        raise InputError("simplex needs features: give `features`, or use method='empirical'")
    if not problem.has_mean_one:
        raise InputError(
            "a ratio that counts visits has another mean than 1: say semantics='restart', or use "
            "method='least-squares'"
        )
    moments = RatioMoments.of(experience)
    system, right = moments.equation(problem.semantics, problem.ratio_discount)
    rows = np.concatenate([sample.x_tm1 for sample in experience.samples()])
    weight = np.concatenate([sample.weight for sample in experience.samples()])
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(place.ravel(), weight) / weight.sum()
    largest = float(np.linalg.eigvalsh(np.asarray(moments.gram) / moments.count)[-1])
    w = project_weighted_simplex(_start_at_one(rows), distinct, share)
    for _ in range(iterations):
        moved = w + step_size / largest * (right - as_dense(system) @ w)
        following = project_weighted_simplex(moved, distinct, share)
        change = np.abs(following - w).max()
        w = following
        if change <= tolerance * max(1.0, np.abs(w).max()):
            break
    return LinearRatioFunction(w)


register_method("empirical", fit_empirical)
register_method("td", fit_td)
register_method("least-squares", fit_least_squares)
register_method("semi-gradient", fit_semi_gradient)
register_method("simplex", fit_simplex)


def fit_ratio(problem: RatioProblem, method: str, **options: Any) -> RatioFunction:
    """The ratio by a method's name."""
    if method not in METHODS:
        raise InputError(f"there is no method '{method}'; say {' | '.join(METHODS)}")
    try:
        return METHODS[method](problem, **options)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise InputError(f"method {method}: {str(error).partition(' ')[2]}") from error
        raise


def _tabular(name: str, problem: RatioProblem) -> Experience:
    if not problem.experience.is_tabular:
        raise InputError(
            f"method '{name}' needs states that are whole numbers or one-hot vectors; use 'least-squares'"
        )
    return problem.experience


def _solve_ratio(problem: RatioProblem, moments: RatioMoments, ridge: float) -> Vector:
    system, right = moments.equation(problem.semantics, problem.ratio_discount, problem.discount)
    never = np.zeros(len(right), dtype=bool)
    if problem.experience.is_tabular:
        never = moments.total <= 0
        keep = np.flatnonzero(~never)
        system, right = system[np.ix_(keep, keep)] if not sp.issparse(system) else sp.csr_array(
            sp.csr_array(system)[keep][:, keep]
        ), right[keep]  # fmt: skip
    if problem.has_mean_one and problem.ratio_discount == 1.0:
        # The equation fixes the ratio up to its scale; one more row says that its mean is 1.
        mean = (moments.total / moments.count)[~never]
        stacked = np.vstack([as_dense(system) + ridge * np.eye(len(right)), mean])
        found = np.asarray(np.linalg.lstsq(stacked, np.append(right, 1.0))[0])
    else:
        found = solve(system, right, ridge)
    if not problem.experience.is_tabular:
        return found
    table = np.ones(len(never))
    table[~never] = found
    return table


def _rescaled(problem: RatioProblem, found: LinearRatioFunction) -> LinearRatioFunction:
    """In the scale in which ĉ has mean 1, where c has; the 1/c weighting loses it (B1)."""
    if not problem.has_mean_one:
        return found
    total = count = 0.0
    for sample in problem.experience.samples():
        total += float(sample.weight @ found.at(sample.x_tm1))
        count += float(sample.weight.sum())
    return LinearRatioFunction(found.w * count / total) if total > 0 else found


def _start_at_one(phi: Dense) -> Vector:
    """Weights whose ratio is as near to 1 everywhere as the features allow."""
    return np.asarray(np.linalg.lstsq(phi, np.ones(len(phi)))[0])


def _arrivals(
    problem: RatioProblem, rng: np.random.Generator, *, by_row: bool = False
) -> Iterator[tuple[int, float, int, bool]]:
    """(s, γρ, s', whether s' starts an episode) in the order of the data; s' = -1 where a record begins.

    With `by_row` states are row numbers: i for the state before transition i, N + i for that after it.
    """
    samples = list(problem.experience.samples())
    columns = {
        name: np.concatenate([getattr(sample, name) for sample in samples])
        for name in ("rho_tm1", "terminated_t", "is_initial_tm1", "trajectory")
    }
    size = len(columns["rho_tm1"])
    if by_row:
        before, after = np.arange(size), np.arange(size, 2 * size)
    else:
        before = np.concatenate([sample.x_tm1 for sample in samples])
        after = np.concatenate([sample.x_t for sample in samples])
    order = np.arange(size)
    if problem.experience.weights is not None:
        order = _resample(columns["trajectory"], problem.experience.weights, rng)
    first = np.diff(columns["trajectory"], prepend=-1) > 0
    source, rho, arrived = (
        column[order].tolist() for column in (before, problem.discount * columns["rho_tm1"], after)
    )
    ended, starts, begins = (
        column[order].tolist()
        for column in (columns["terminated_t"], columns["is_initial_tm1"], first)
    )
    semantics, previous = problem.semantics, -1
    for i in range(len(order)):
        if begins[i]:
            follows = semantics == "restart" and previous >= 0 and ended[previous] and starts[i]
            if follows:
                yield source[previous], rho[previous], source[i], False
            else:
                yield 0, 1.0, -1, False
                if semantics == "visits" and starts[i]:
                    yield source[i], 1.0, source[i], True
        if not ended[i]:
            yield source[i], rho[i], arrived[i], False
        previous = i


def _resample(
    trajectory: NDArray[np.int64], weights: Vector, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of as many trajectories as there are, drawn with these weights."""
    bounds = np.append(np.flatnonzero(np.diff(trajectory, prepend=-1) > 0), len(trajectory))
    drawn = rng.choice(len(weights), size=len(weights), p=weights / weights.sum())
    return np.concatenate([np.arange(bounds[k], bounds[k + 1]) for k in drawn])
