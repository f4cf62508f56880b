"""Whether a ratio can be believed: what it says about the replay against what the replay's own episodes show.

For a function f of states, E_μ[c f] needs no ratio if π can be followed (`rules.ratio_moment`):

    E_μ[c f] = γ̂ p₀ E[Σ_t γ̂ᵗ f(s_t) | s_0 ~ d₀] + (1 - γ̂) E[Σ_t γ̂ᵗ f(s_t) | s_0 ~ d]

A replay cannot run π. But its episodes took their actions with known probabilities μ(a|s), and its newest ones took them
nearly as π does. So the first mean is over the newest episodes and the second over what followed random states, and
both are reweighted to π: step t of trajectory i has the weight w_it = Π_{k<t} ρ_ik over the sum of all trajectories' weights
at t. An ended trajectory keeps its last weight and counts as 0. These weighted means are bounded, whatever ρ is, and they approach the
exact ones with more trajectories (weighted per-decision importance sampling, Precup et al., 2000).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.rules import ratio_moment

TRAJECTORIES = 64
"""Trajectories at most from each kind of start."""

MOST_STEPS = 4096
"""Steps at most of all trajectories from one kind of start, so that the check takes little time beside training."""

_TAIL = 0.01
"""Discounted sums end where less than this share of their weight is left."""


class EpisodeCheck(NamedTuple):
    """A learned ratio beside the replay's own episodes.

    Attributes:
        mean_ratio: E_μ[c] by the episodes.
        error: the largest of |E_μ[c f] - by the episodes| over E_μ[c |f|] by the episodes, over the functions f.
        trajectories: how many trajectories of equal weight tell as much as the weighted ones, from starts or from
            states, whichever is fewer; chance alone makes an error of about 1 over its root.
    """

    mean_ratio: float
    error: float
    trajectories: float


class Trajectories(NamedTuple):
    """Steps of several trajectories, steps × trajectories; what lies behind a trajectory's end is not used.

    Attributes:
        is_step: where there is a step.
        rho: ρ = π(a|s)/μ(a|s) of each step.
        values: for each function f its value at each step.
    """

    is_step: NDArray[np.bool_]
    rho: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]]


class Sums(NamedTuple):
    """Weighted means over trajectories.

    Attributes:
        of: for each function f, E[Σ γ̂ᵗ f(s_t)].
        of_sizes: the same for |f|.
        trajectories: effective number of trajectories, a mean over t with the weights γ̂ᵗ.
    """

    of: dict[str, float]
    of_sizes: dict[str, float]
    trajectories: float


def horizon(ratio_discount: float) -> int:
    """Steps after which less than a hundredth of Σ γ̂ᵗ is left."""
    return math.ceil(math.log(_TAIL) / math.log(ratio_discount))


def discounted_sums(followed: Trajectories, ratio_discount: float) -> Sums:
    """E[Σ_t γ̂ᵗ f(s_t)] under π, by trajectories that took their actions with other probabilities."""
    steps, count = followed.is_step.shape
    weight, share = np.ones(count), np.ones(count)
    of, of_sizes = (dict.fromkeys(followed.values, 0.0) for _ in range(2))
    effective, total = 0.0, 0.0
    for t in range(steps):
        share = weight / weight.sum()
        alive = np.where(followed.is_step[t], share, 0.0)
        discount = ratio_discount**t
        for name, f in followed.values.items():
            of[name] += discount * float(alive @ np.where(followed.is_step[t], f[t], 0.0))
            of_sizes[name] += discount * float(
                alive @ np.where(followed.is_step[t], abs(f[t]), 0.0)
            )
        effective += discount / float(np.square(share).sum())
        total += discount
        passed = np.where(followed.is_step[t], followed.rho[t], 1.0)
        # Only shares count, so that products of many ρ neither vanish nor overflow.
        weight = share * passed
        if not weight.any():  # π would have left every trajectory.
            break
    return Sums(of, of_sizes, effective / total)


def compare(
    learned: dict[str, float],
    from_starts: Sums,
    from_states: Sums,
    initial_share: float,
    ratio_discount: float,
) -> EpisodeCheck:
    """Compares E_μ[c f] by the learned ratio with what trajectories show; one function has the name '1'."""

    def moment(starts: dict[str, float], states: dict[str, float], name: str) -> float:
        return ratio_moment(starts[name], states[name], initial_share, ratio_discount)

    errors = [
        abs(value - moment(from_starts.of, from_states.of, name))
        / max(moment(from_starts.of_sizes, from_states.of_sizes, name), 1e-12)
        for name, value in learned.items()
    ]
    return EpisodeCheck(
        moment(from_starts.of, from_states.of, "1"),
        max(errors),
        min(from_starts.trajectories, from_states.trajectories),
    )
