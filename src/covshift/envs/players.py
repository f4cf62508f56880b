"""Players that are written by hand, as behavior policies that know the game: `module:function`, as `--policy` takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EPSILON = 0.02
"""Share of random actions, so that every action is seen in every state."""

_STAY, _LEFT, _RIGHT = range(3)
_PADDLE, _BALL, _TRAIL = range(3)


def breakout(planes: NDArray[Any]) -> NDArray[np.float64]:
    """Plays MinAtar's Breakout: the paddle goes to where the ball will come down.

    The ball moves by one cell in each direction per step and is reflected by the walls. While it goes up, the paddle
    follows its column.

    Args:
        planes: batch × 10 × 10 × 4: paddle, ball, trail and bricks.
    """
    last = planes.shape[1] - 1
    (paddle, _), (column, row), (old_column, old_row) = (
        _position(planes[..., plane]) for plane in (_PADDLE, _BALL, _TRAIL)
    )
    # A ball that keeps its row was reflected: by the paddle in the lowest row above it, else by a brick or the ceiling.
    falls = (row > old_row) | ((row == old_row) & (row < last - 1))
    # A ball that keeps its column is at a wall, and comes away from it.
    drift = np.sign(column - old_column) + (column == old_column) * np.where(column == 0, 1, -1)
    landing = _reflected(column + drift * (last - 1 - row), last)
    goal = np.where(falls, landing, column)
    best = np.where(goal < paddle, _LEFT, np.where(goal > paddle, _RIGHT, _STAY))
    probabilities = np.full((len(planes), 3), EPSILON / 3)
    probabilities[np.arange(len(planes)), best] += 1.0 - EPSILON
    return probabilities


def _position(plane: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Column and row of the one cell that is set in each sample."""
    cell = plane.reshape(len(plane), -1).argmax(axis=1)
    return cell % plane.shape[2], cell // plane.shape[2]


def _reflected(column: NDArray[np.int64], last: int) -> NDArray[np.int64]:
    """A column beyond a wall, as the ball comes back from it; it stays at the wall for one step."""
    column = np.where(column < 0, -1 - column, column)
    return np.where(column > last, 2 * last + 1 - column, column)
