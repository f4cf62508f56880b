"""Small problems with a history, and generators of random ones."""

from covshift.theory.examples.classics import (
    bairds_star,
    boyan_chain,
    kolter_chain,
    tsitsiklis_van_roy,
)
from covshift.theory.examples.grids import four_rooms, gridworld, open_grid
from covshift.theory.examples.problem import Problem
from covshift.theory.examples.random import (
    dirichlet,
    episodic,
    garnet,
    random_features,
    random_policy,
)
from covshift.theory.examples.walks import line_chain, random_walk

__all__ = [
    "Problem",
    "bairds_star",
    "boyan_chain",
    "dirichlet",
    "episodic",
    "four_rooms",
    "garnet",
    "gridworld",
    "kolter_chain",
    "line_chain",
    "open_grid",
    "random_features",
    "random_policy",
    "random_walk",
    "tsitsiklis_van_roy",
]
