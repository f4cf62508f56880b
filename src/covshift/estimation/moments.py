"""Sums over the data from which linear estimators solve; a table is the case of one-hot features."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse.linalg import splu

from covshift.errors import InputError
from covshift.estimation.experience import EpisodeSemantics, Experience
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.sample import Sample
from covshift.theory.chain import as_dense
from covshift.validation import Dense, Matrix, Vector

LossWeight: TypeAlias = Callable[[NDArray[Any]], Vector]
"""Maps features of states to the weights of their errors."""

_CONDITION = 1e-12
"""Reciprocal condition number below which a dense system is solved by least squares."""

_SEGMENT_NUMBERS = 8_000_000
"""The most numbers of sums of single trajectories that are in memory at once."""

MOST_FEATURES = 10_000
"""Most features of which dense matrices, then 0.8 GB each, are made."""


@final
@dataclass(frozen=True, eq=False)
class RatioMoments:
    """Sums for ĉ(s) = φ(s)ᵀw that give the equation of every γ̂ and every semantics.

    Attributes:
        count: transitions.
        starts: initial states.
        gram: Σ φ(s) φ(s)ᵀ over the states acted in.
        cross: Σ ρ φ(s') φ(s)ᵀ over transitions that end no episode.
        total: Σ φ(s).
        initial: Σ φ(s₀).
        ending: Σ ρ φ(s) over transitions that end an episode.
    """

    count: float
    starts: float
    gram: Matrix
    cross: Matrix
    total: Vector
    initial: Vector
    ending: Vector

    @classmethod
    def of(cls, experience: Experience, loss_weight: LossWeight | None = None) -> RatioMoments:
        """One pass over the data, for a whole batch of weightings; `loss_weight` weighs the error at each state."""
        size = experience.features.size
        _check_size(experience, size)

        def parts(sample: Sample) -> tuple[_Outer, ...]:
            x_tm1, x_t = (_rows(x, size) for x in (sample.x_tm1, sample.x_t))
            error_tm1 = _weigh(loss_weight, sample.x_tm1, sample.weight)
            error_t = _weigh(loss_weight, sample.x_t, sample.weight)
            return (
                _Outer(None, None, sample.weight),
                _Outer(None, None, sample.weight * sample.is_initial_tm1),
                _Outer(x_tm1, x_tm1, error_tm1),
                _Outer(x_t, x_tm1, error_t * sample.rho_tm1 * ~sample.terminated_t),
                _Outer(x_tm1, None, error_tm1),
                _Outer(x_tm1, None, error_tm1 * sample.is_initial_tm1),
                _Outer(x_tm1, None, sample.weight * sample.rho_tm1 * sample.terminated_t),
            )

        if loss_weight is not None:
            return cls(*_sum_parts(map(parts, experience.merged())))
        return experience.together(
            cls, lambda batch: [cls(*sums) for sums in _sum_all(batch, parts)]
        )

    def equation(
        self, semantics: EpisodeSemantics, ratio_discount: float, discount: float = 1.0
    ) -> tuple[Matrix, Vector]:
        """The k × k system of the fixed point, divided by the number of transitions.

        Σ φ(s)(ĉ(s) - (1 - γ̂)) = γ̂ [Σ γ ρ ĉ(s) φ(s') + inflow], summed over transitions. The inflow of
        `visits` is Σ φ(s₀); that of `restart` is what ended, Σ ρ ĉ(s), times the mean of φ(s₀).

        d_μ is the distribution of the states in which actions were logged. If no trajectory is cut off these are all
        states, and the equation is that of the initial-state rule.
        """
        system: Any = self.gram - ratio_discount * discount * self.cross
        right = (1.0 - ratio_discount) * self.total
        if semantics == "visits":
            right = right + ratio_discount * self.initial
        elif semantics == "restart":
            back = np.outer(self.initial / self.starts, self.ending)
            system = as_dense(system) - ratio_discount * back
        return system / self.count, right / self.count


@final
@dataclass(frozen=True, eq=False)
class PairMoments:
    """Sums over state-action features ψ(s, a) = φ(s) ⊗ e_a.

    Attributes:
        count: transitions.
        starts: initial states.
        gram: Σ ψ(s, a) ψ(s, a)ᵀ.
        cross: Σ ψ(s, a) ψ̄(s')ᵀ with ψ̄(s') = Σ_b π(b|s') ψ(s', b), 0 where the episode ended.
        total: Σ ψ(s, a).
        ended: Σ ψ(s, a) over transitions that end an episode.
        reward: Σ r ψ(s, a).
        initial: Σ ψ̄(s₀).
    """

    count: float
    starts: float
    gram: Matrix
    cross: Matrix
    total: Vector
    ended: Vector
    reward: Vector
    initial: Vector

    @classmethod
    def of(cls, experience: Experience) -> PairMoments:
        """One pass over data on features, for a whole batch of weightings; see `of_table` for tables."""
        size, num_actions = experience.features.size, experience.num_actions
        _check_size(experience, size * num_actions)

        def parts(sample: Sample) -> tuple[_Outer, ...]:
            weight = sample.weight
            after = _by_action(sample.x_t, sample.pi_t)
            before = _by_action(sample.x_tm1, sample.pi_tm1)
            taken = [weight * (sample.a_tm1 == action) for action in range(num_actions)]
            stays = ~sample.terminated_t
            x = _rows(sample.x_tm1, size)
            return (
                _Outer(None, None, weight),
                _Outer(None, None, weight * sample.is_initial_tm1),
                _Outer(before, None, weight * sample.is_initial_tm1),
                *(_Outer(x, x, w) for w in taken),
                *(_Outer(x, after, w * stays) for w in taken),
                *(_Outer(x, None, w) for w in taken),
                *(_Outer(x, None, w * sample.terminated_t) for w in taken),
                *(_Outer(x, None, w * sample.r_t) for w in taken),
            )

        def made(sums: list[Any]) -> PairMoments:
            count, starts, initial, *rest = sums
            gram, cross, total, ended, reward = (
                rest[i : i + num_actions] for i in range(0, len(rest), num_actions)
            )
            arrived = np.stack(cross, axis=1).reshape(size * num_actions, -1)
            by_pair: list[Any] = [np.stack(v, axis=1).ravel() for v in (total, ended, reward)]
            return cls(*[count, starts, _block_diagonal(gram), arrived, *by_pair, initial])

        return experience.together(
            cls, lambda batch: [made(sums) for sums in _sum_all(batch, parts)]
        )

    @classmethod
    def of_table(cls, experience: Experience) -> PairMoments:
        """The same sums for the counted model, in which π takes no action that was never logged.

        Pairs are ordered by the model's states, then actions.
        """
        model = EmpiricalModel.of(experience)
        return experience.once("pair moments of a table", lambda: cls._of_model(model))

    @classmethod
    def _of_model(cls, model: EmpiricalModel) -> PairMoments:
        size, num_actions = model.pairs.shape
        columns = np.arange(model.pi.size)
        bounds = np.arange(0, model.pi.size + 1, num_actions)
        pick = sp.csr_array((model.pi.ravel(), columns, bounds), shape=(size, model.pi.size))
        to_data = sp.csr_array(model.lost.reshape(-1, 1)) @ sp.csr_array(model.d_mu[None, :])
        count = model.pairs.ravel()
        return cls(
            float(count.sum()),
            float(model.starts.sum()),
            sp.csr_array(sp.diags_array(count)),
            sp.csr_array((model.arrivals + to_data) @ pick),
            count,
            count * model.end_share().ravel(),
            count * model.reward.ravel(),
            np.asarray(model.starts @ pick),
        )

    def restarted(self) -> PairMoments:
        """The sums in which an episode's end leads to the mean of ψ̄(s₀)."""
        back = np.outer(self.ended, self.initial / max(self.starts, 1e-300))
        return replace(self, cross=as_dense(self.cross) + back, ended=np.zeros_like(self.ended))


def pair_features(experience: Experience, sample: Sample) -> tuple[Any, Any]:
    """ψ(s, a) of the action taken and ψ̄(s) = Σ_b π(b|s) ψ(s, b)."""
    taken = np.zeros_like(sample.pi_tm1)
    taken[np.arange(len(taken)), sample.a_tm1] = 1.0
    return (
        expected_features(experience, sample.x_tm1, taken),
        expected_features(experience, sample.x_tm1, sample.pi_tm1),
    )


def expected_features(experience: Experience, x: NDArray[Any], pi: NDArray[np.float64]) -> Any:
    """Σ_b π(b|s) φ(s) ⊗ e_b, feature by feature then action by action; sparse for a table."""
    rows, num_actions = pi.shape
    if not experience.is_tabular:
        return _by_action(x, pi)
    columns = (x[:, None] * num_actions + np.arange(num_actions)).ravel()
    bounds = np.arange(0, pi.size + 1, num_actions)
    made = sp.csr_array(
        (pi.ravel(), columns, bounds), shape=(rows, experience.features.size * num_actions)
    )
    made.eliminate_zeros()
    return made


def _by_action(x: NDArray[Any], pi: NDArray[np.float64]) -> Dense:
    return np.asarray((x[:, :, None] * pi[:, None, :]).reshape(len(x), -1))


def outer(left: Any, right: Any, weight: Vector) -> Any:
    """Σ weight · left rightᵀ over rows."""
    if isinstance(left, sp.csr_array):
        return sp.csr_array(left.T @ sp.csr_array(sp.diags_array(weight) @ right))
    return left.T @ (weight[:, None] * right)


def solve(system: Matrix, right: Vector, ridge: float = 0.0) -> Vector:
    """x with (system + ridge · I) x = right; for a dense system the smallest least-squares solution.

    Raises:
        InputError: a sparse system is singular.
    """
    if sp.issparse(system):
        square = sp.csc_array(system + ridge * sp.eye_array(system.shape[0]))
        try:
            return np.asarray(splu(square).solve(right))
        except RuntimeError as error:
            raise InputError(
                "the data do not determine a ratio in every state; add a ridge, or use method='empirical'"
            ) from error
    dense = np.array(system)
    dense[np.diag_indices_from(dense)] += ridge
    factors, pivots, info = lapack.dgetrf(dense)
    if info == 0 and lapack.dgecon(factors, np.abs(dense).sum(axis=0).max())[0] > _CONDITION:
        return np.asarray(lapack.dgetrs(factors, pivots, right)[0])
    return np.asarray(np.linalg.lstsq(dense, right)[0])


def _check_size(experience: Experience, size: int) -> None:
    if not experience.is_tabular and size > MOST_FEATURES:
        raise InputError(
            f"{size:,} features are too many for dense matrices (at most {MOST_FEATURES:,}); take fewer, such as "
            "fourier:500, or for a ratio the method neural"
        )


class _Outer(NamedTuple):
    """Σ weight · left rightᵀ over rows; without `right` Σ weight · left, and without both Σ weight."""

    left: Any
    right: Any
    weight: Vector

    def sum(self) -> Any:
        """Over all rows."""
        if self.left is None:
            return self.weight.sum()
        if self.right is None:
            return self.left.T @ self.weight
        if isinstance(self.left, np.ndarray) and not self.weight.all():
            kept = self.weight != 0
            return outer(self.left[kept], self.right[kept], self.weight[kept])
        return outer(self.left, self.right, self.weight)

    def sum_by(self, starts: NDArray[np.int64], weights: Dense) -> Dense:
        """Over rows for each of several weightings of segments that begin at `starts`: weightings × size.

        The sums of the segments are made once, and their weighted sums are matrix products.
        """
        if self.right is None:
            each = self.weight if self.left is None else self.left * self.weight[:, None]
            return np.asarray(weights @ np.add.reduceat(each, starts, axis=0))
        kept = np.flatnonzero(self.weight)
        left, right = self.left[kept] * self.weight[kept, None], self.right[kept]
        total = np.zeros((len(weights), left.shape[1], right.shape[1]))
        segment = np.searchsorted(starts, kept, side="right") - 1
        heads = np.flatnonzero(np.diff(segment, prepend=-1))
        if len(kept) < len(heads) * (1.0 + 100.0 / len(weights)):
            # The sums of short segments take longer to write down than they save.
            for sums, weight in zip(total, weights, strict=True):
                np.matmul((left * weight[segment, None]).T, right, out=sums)
            return total
        bounds = [*itertools.pairwise([*heads.tolist(), len(kept)])]
        step = max(1, _SEGMENT_NUMBERS // (len(heads) * right.shape[1]))
        for first in range(0, left.shape[1], step):
            some = left[:, first : first + step]
            made = np.stack([some[a:b].T @ right[a:b] for a, b in bounds])
            flat = weights[:, segment[heads]] @ made.reshape(len(bounds), -1)
            total[:, first : first + step] = flat.reshape(len(weights), -1, right.shape[1])
        return total


def _sum_all(
    batch: list[Experience], parts: Callable[[Sample], tuple[_Outer, ...]]
) -> Iterator[list[Any]]:
    """The sums of the parts for each of several weightings of the same data, in one pass if they are on features."""
    mapper = batch[0].logs.mapper
    if batch[0].is_tabular or (len(batch) == 1 and mapper is None):
        for experience in batch:
            yield _sum_parts(map(parts, experience.merged()))
        return
    weights = np.stack([experience.trajectory_weights for experience in batch])
    if mapper is None:
        totals = _weighted_sums(batch[0], parts, weights)
    else:
        arguments = [(parts, weights[:, low:high]) for low, high in mapper.bounds]
        totals = functools.reduce(_add, mapper.map(batch[0], _weighted_sums, arguments))
    for sums in zip(*totals, strict=True):
        yield [float(sums[0]), float(sums[1]), *sums[2:]]


def _weighted_sums(
    experience: Experience, parts: Callable[[Sample], tuple[_Outer, ...]], weights: Dense
) -> list[Any]:
    """The sums of the parts with weightings × trajectories as weights."""
    totals: list[Any] = []
    for sample in experience.reweighted(np.ones(weights.shape[1])).samples():
        starts = np.flatnonzero(np.diff(sample.trajectory, prepend=-1))
        some = weights[:, sample.trajectory[starts]]
        more = [part.sum_by(starts, some) for part in parts(sample)]
        totals = _add(totals, more) if totals else more
    return totals


def _add(left: list[Any], right: list[Any]) -> list[Any]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _sum_parts(parts: Iterator[tuple[_Outer, ...]]) -> list[Any]:
    sums = [part.sum() for part in next(parts)]
    for more in parts:
        sums = [total + part.sum() for total, part in zip(sums, more, strict=True)]
    return [float(sums[0]), float(sums[1]), *sums[2:]]


def _block_diagonal(blocks: Sequence[Dense]) -> Dense:
    """The Gram matrix of φ(s) ⊗ e_a, from that of φ(s) for each action."""
    size, count = len(blocks[0]), len(blocks)
    made = np.zeros((size, count, size, count))
    for index, block in enumerate(blocks):
        made[:, index, :, index] = block
    return made.reshape(size * count, size * count)


def _rows(x: NDArray[Any], size: int) -> Any:
    """Features as they are; state numbers as one-hot rows."""
    if x.ndim == 2:
        return x
    count = len(x)
    return sp.csr_array((np.ones(count), x, np.arange(count + 1)), shape=(count, size))


def _weigh(loss_weight: LossWeight | None, x: NDArray[Any], weight: Vector) -> Vector:
    return weight if loss_weight is None else np.asarray(weight * loss_weight(x))
