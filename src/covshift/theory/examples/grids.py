"""Gridworlds from maps and of any size, always with sparse transition matrices."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.theory.examples.problem import Problem
from covshift.theory.mdp import FiniteMDP
from covshift.validation import Dense

FOUR_ROOMS = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#S    #    G#
#############
"""

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
"""Up, down, left, right as (row, column)."""


def four_rooms(epsilon: float = 0.1, slip: float = 0.1) -> Problem:
    """The four rooms of Sutton, Precup & Singh (1999): start lower left, goal lower right."""
    return gridworld(FOUR_ROOMS, epsilon=epsilon, slip=slip)


def open_grid(side: int, epsilon: float = 0.1, slip: float = 0.1) -> Problem:
    """A square without inner walls, start in one corner and goal in the opposite one."""
    if side < 2:
        raise InputError(f"a grid needs at least 2 cells per side, but side is {side}")
    free = np.ones((side, side), dtype=bool)
    return _problem(free, start=0, goal=side * side - 1, epsilon=epsilon, slip=slip)


def gridworld(text: str, *, epsilon: float = 0.1, slip: float = 0.1) -> Problem:
    """A continuing gridworld from a map: '#' wall, 'S' start, 'G' goal, anything else free.

    There are four actions; with probability `slip` the move is one of the four at random, and a move into a
    wall stays. The goal gives reward 1 and leads to the start. μ is uniform; π takes a shortest way to the
    goal and, with probability `epsilon`, a random action.

    States are the free cells in reading order; `cells(text)` gives their rows and columns.
    """
    cells = _parse(text)
    free = cells != "#"
    number = np.cumsum(free).reshape(free.shape) - 1
    marks = {}
    for mark in "SG":
        found = np.argwhere(cells == mark)
        if len(found) != 1:
            raise InputError(f"the map needs exactly one '{mark}', but it has {len(found)}")
        marks[mark] = int(number[tuple(found[0])])
    return _problem(free, start=marks["S"], goal=marks["G"], epsilon=epsilon, slip=slip)


def cells(text: str) -> NDArray[np.int64]:
    """Row and column of each state of `gridworld(text)`."""
    return np.argwhere(_parse(text) != "#")


def _parse(text: str) -> NDArray[np.str_]:
    lines = [line for line in text.splitlines() if line]
    width = max((len(line) for line in lines), default=0)
    if width == 0:
        raise InputError("the map is empty")
    return np.array([list(line.ljust(width)) for line in lines])


def _problem(
    free: NDArray[np.bool_], *, start: int, goal: int, epsilon: float, slip: float
) -> Problem:
    neighbors = _neighbors(free)
    size = len(neighbors)
    neighbors[goal] = start
    rows = np.repeat(np.arange(size * 4), 4)
    columns = np.repeat(neighbors, 4, axis=0).reshape(-1)
    data = np.tile(((1.0 - slip) * np.eye(4) + slip / 4.0).reshape(-1), size)
    p = sp.csr_array((data, (rows, columns)), shape=(size * 4, size))
    p.sum_duplicates()
    r = np.zeros((size, 4))
    r[goal] = 1.0
    pi = np.full((size, 4), epsilon / 4.0)
    pi[np.arange(size), _shortest_way(_neighbors(free), goal)] += 1.0 - epsilon
    return Problem(FiniteMDP(p, r), pi, np.full((size, 4), 0.25), 0.99)


def _neighbors(free: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The state that each move of each state leads to."""
    cells = np.argwhere(free)
    number = np.cumsum(free).reshape(free.shape) - 1
    table = np.empty((len(cells), 4), dtype=np.int64)
    for action, move in enumerate(MOVES):
        there = np.clip(cells + move, 0, np.array(free.shape) - 1)
        inside = free[there[:, 0], there[:, 1]]
        target = number[there[:, 0], there[:, 1]]
        table[:, action] = np.where(inside, target, np.arange(len(cells)))
    return table


def _shortest_way(neighbors: NDArray[np.int64], goal: int) -> NDArray[np.int64]:
    """For each state a move that comes nearer to the goal, by breadth-first search from it."""
    distance = np.full(len(neighbors), len(neighbors), dtype=np.int64)
    distance[goal] = 0
    reached = np.zeros(len(neighbors), dtype=bool)
    reached[goal] = True
    steps, front = 0, np.array([goal])
    while len(front):
        steps += 1
        around = np.unique(neighbors[front])
        front = around[~reached[around]]
        reached[front] = True
        distance[front] = steps
    if not reached.all():
        raise InputError(f"{int((~reached).sum())} cells cannot reach the goal; wall them in")
    tie_break: Dense = np.array([0.0, 0.1, 0.2, 0.3])
    return np.asarray((distance[neighbors] + tie_break).argmin(axis=1))
