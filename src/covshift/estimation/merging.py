"""Equal transitions of a table merged, so that a weighting of the trajectories is a sum per distinct transition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.estimation.sample import Sample
from covshift.validation import Vector


@final
@dataclass(frozen=True, eq=False)
class MergedTransitions:
    """The distinct transitions (s, a, s', ended, initial, ρ) of a table, and how often each trajectory has each.

    Estimators on tables sum over transitions and are linear in rewards, so that counts and mean rewards of distinct transitions
    are all they need.

    Attributes:
        distinct: one row per distinct transition; the reward is that of its first occurrence.
        counts: distinct transitions × trajectories.
        rewards: sums of rewards in the same form; None where equal transitions have equal rewards.
    """

    distinct: Sample
    counts: sp.csr_array
    rewards: sp.csr_array | None

    @classmethod
    def of(
        cls, samples: Iterable[Sample], num_states: int, num_trajectories: int
    ) -> MergedTransitions:
        """One pass over samples whose states are numbers below `num_states`."""
        columns = [_columns(sample) for sample in samples]
        x_tm1, a_tm1, x_t, ends, rho, reward, trajectory = (
            np.concatenate(parts) for parts in zip(*(c[:7] for c in columns), strict=True)
        )
        pi = np.zeros((num_states, columns[0][7].shape[1]))
        for column in columns:
            pi[column[0]], pi[column[2]] = column[7], column[8]
        first, number = _find_distinct(x_tm1, a_tm1, x_t, ends, rho, pi.shape[1], num_states)
        shape = (len(first), num_trajectories)
        same = np.array_equal(reward[first][number], reward)
        distinct = Sample(
            x_tm1[first],
            a_tm1[first],
            rho[first],
            pi[x_tm1[first]],
            reward[first],
            ends[first] >= 2,
            x_t[first],
            pi[x_t[first]],
            ends[first] % 2 == 1,
            np.zeros(len(first), dtype=np.int64),
            np.ones(len(first)),
        )
        return cls(
            distinct,
            sp.csr_array((np.ones(len(number)), (number, trajectory)), shape=shape),
            None if same else sp.csr_array((reward, (number, trajectory)), shape=shape),
        )

    @classmethod
    def join(cls, parts: list[MergedTransitions], num_states: int) -> MergedTransitions:
        """The merged transitions of all trajectories, from those of parts that follow one another."""
        columns: list[Any] = [
            np.concatenate(column)
            for column in zip(*(part.distinct for part in parts), strict=True)
        ]
        rows = Sample(*columns)
        first, number = _find_distinct(
            rows.x_tm1,
            rows.a_tm1,
            rows.x_t,
            _ends(rows),
            rows.rho_tm1,
            rows.pi_tm1.shape[1],
            num_states,
        )
        kept: list[Any] = [column[first] for column in rows]
        # A row per distinct transition and a column per row of the parts.
        shape = (len(first), len(number))
        gather = sp.csr_array((np.ones(len(number)), (number, np.arange(len(number)))), shape=shape)
        counts = gather @ sp.block_diag([part.counts for part in parts], format="csr")
        same = all(part.rewards is None for part in parts)
        rewards = None
        if not (same and np.array_equal(rows.r_t[first][number], rows.r_t)):
            sums = sp.block_diag([part._reward_sums() for part in parts], format="csr")
            rewards = sp.csr_array(gather @ sums)
        return cls(Sample(*kept), sp.csr_array(counts), rewards)

    def _reward_sums(self) -> sp.csr_array:
        if self.rewards is not None:
            return self.rewards
        return sp.csr_array(sp.diags_array(self.distinct.r_t) @ self.counts)

    def weighed(self, weights: Vector) -> Sample:
        """The distinct transitions with the sum of their weights and their mean rewards."""
        weight = self.counts @ weights
        kept = weight > 0
        reward = self.distinct.r_t[kept]
        if self.rewards is not None:
            reward = (self.rewards @ weights)[kept] / weight[kept]
        if not kept.all():
            columns: list[Any] = [column[kept] for column in self.distinct]
            merged = Sample(*columns)
        else:
            merged = self.distinct
        return merged._replace(weight=weight[kept], r_t=reward)


def _find_distinct(
    x_tm1: NDArray[Any],
    a_tm1: NDArray[Any],
    x_t: NDArray[Any],
    ends: NDArray[Any],
    rho: Vector,
    num_actions: int,
    num_states: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each distinct transition, and the number of the distinct transition that each row is."""
    code = ((x_tm1 * num_actions + a_tm1) * num_states + x_t) * 4 + ends
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    if not np.array_equal(rho[first][number], rho):
        # Several behavior policies took the same action in the same state.
        values, which = np.unique(rho, return_inverse=True)
        code = number * len(values) + which
        _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return first, number


def _ends(sample: Sample) -> NDArray[np.int64]:
    return 2 * sample.terminated_t.astype(np.int64) + sample.is_initial_tm1


def _columns(sample: Sample) -> tuple[NDArray[Any], ...]:
    return (
        sample.x_tm1,
        sample.a_tm1,
        sample.x_t,
        _ends(sample),
        sample.rho_tm1,
        sample.r_t,
        sample.trajectory,
        sample.pi_tm1,
        sample.pi_t,
    )
