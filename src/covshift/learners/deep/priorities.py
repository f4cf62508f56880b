"""How drawn transitions are prioritized: by the learned ratio, or by TD error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covshift.config.training import ReplayOptions

_RATIO_MEMORY = 0.99
"""Share of the running mean ratio that one batch leaves unchanged."""

_LEAST_UNIT = 1e-6
"""Below this mean the ratio is taken for 0, and priorities are not divided by it."""

_TD_OFFSET = 1e-10
"""Added to the cross-entropy under the root, as in Dopamine's Rainbow."""


class DrawnTransitions(NamedTuple):
    """What an update knows about its transitions before the step; the last two are computed on demand.

    Attributes:
        errors: cross-entropy of each transition.
        ratio: computes c(s), clipped at 0.
        rho: computes ρ = π(a|s)/μ(a|s).
    """

    errors: Tensor
    ratio: Callable[[], Tensor]
    rho: Callable[[], Tensor]


class UpdateReport(NamedTuple):
    """What an update gave.

    Attributes:
        priority: of each transition of the value's batch; None where transitions are drawn uniformly.
        ratio: c of each state of the ratio's batch, clipped at 0; None where it is not learned.
        means: means over the batch, in the order of `REPORTED_MEANS`.
    """

    priority: NDArray[np.float64] | None
    ratio: NDArray[np.float64] | None
    means: Tensor


@final
@dataclass
class Priority:
    """A way to prioritize transitions, made once from the configuration.

    The learner calls `of_drawn`, the replay uses the rest.

    Attributes:
        of_drawn: the priorities that an update writes for its transitions.
        of_new_after: the next `of_new`, from the present one and an update's report.
        loss_weights: weights of the transitions in the loss, from the probabilities with which they were
            drawn; None weighs all alike.
        floor: smallest priority, so that nothing is forgotten.
        renews_states: also write the ratios of the uniform batch of states.
        is_relative: store priorities over `of_new`, here the running mean ratio, so that old and new ones stay
            comparable while the mean drifts.
        of_new: priority of transitions that enter the replay.
    """

    of_drawn: Callable[[DrawnTransitions], Tensor]
    of_new_after: Callable[[float, UpdateReport], float]
    loss_weights: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    floor: float = 0.0
    renews_states: bool = False
    is_relative: bool = False
    of_new: float = 1.0

    @property
    def unit(self) -> float:
        """What stored priorities are multiples of."""
        return max(self.of_new, _LEAST_UNIT) if self.is_relative else 1.0


def make_priority(options: ReplayOptions) -> Priority | None:
    """The priority that the configuration names; None draws uniformly."""
    if options.priority == "uniform":
        return None
    if options.priority == "td-error":
        return Priority(_root_error, _largest_so_far, _rainbow_weights)
    return Priority(
        _ratio_rho if options.priority == "ratio-rho" else _ratio,
        _running_mean_ratio,
        floor=options.priority_floor,
        renews_states=options.refresh == "both",
        is_relative=options.priority_scale == "mean",
    )


def _ratio(drawn: DrawnTransitions) -> Tensor:
    """c(s), the paper's; sampling by it is the correction, so that the loss has no weights."""
    return drawn.ratio()


def _ratio_rho(drawn: DrawnTransitions) -> Tensor:
    """c(s)·ρ(s, a)."""
    return drawn.ratio() * drawn.rho()


def _root_error(drawn: DrawnTransitions) -> Tensor:
    """√(cross-entropy + 1e-10), as in Rainbow (after Schaul et al., 2016).

    Retrace's targets are signed, so that a cross-entropy can be negative; it then counts as 0.
    """
    return (drawn.errors.clamp(min=0.0) + _TD_OFFSET).sqrt()


def _rainbow_weights(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N p)^-½ over the batch's largest; N cancels."""
    weights = 1.0 / np.sqrt(probabilities)
    return np.asarray(weights / weights.max())


def _running_mean_ratio(of_new: float, report: UpdateReport) -> float:
    assert report.ratio is not None
    return of_new + (1.0 - _RATIO_MEMORY) * (float(report.ratio.mean()) - of_new)


def _largest_so_far(of_new: float, report: UpdateReport) -> float:
    assert report.priority is not None
    return max(of_new, float(report.priority.max()))
