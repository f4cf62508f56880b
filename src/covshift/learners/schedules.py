"""Step sizes as functions of the number of earlier updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from covshift.errors import InputError

Schedule: TypeAlias = Callable[[Any], Any]
"""Maps a count of earlier updates, a number or an array of numbers, to step sizes."""


def constant(step_size: float) -> Schedule:
    """The same step size for every update."""
    _check_positive("step_size", step_size)
    return lambda count: np.full(np.shape(count), step_size) if np.ndim(count) else step_size


def robbins_monro(step_size: float, halfway: float = 1000.0, power: float = 1.0) -> Schedule:
    """step_size / (1 + count/halfway)^power, whose sum diverges and whose squares do not.

    Args:
        step_size: the first step size.
        halfway: the count at which `power` 1 has halved it.
        power: in (½, 1].
    """
    _check_positive("step_size", step_size)
    _check_positive("halfway", halfway)
    if not 0.5 < power <= 1.0:
        raise InputError(f"power must lie in (0.5, 1] to meet Robbins–Monro, but it is {power}")
    return lambda count: step_size / (1.0 + np.asarray(count) / halfway) ** power


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name} must be positive, but it is {value}")
