"""Four rooms, where the exact answers are known: a policy's value and its ratio, estimated from another's data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.colors import LogNorm

from covshift.estimation import Difference, compare_policies, estimate_ratio, simulate_logs
from covshift.experiments.theory.figures.rooms import draw_map
from covshift.report.plots import house_style, panels, to_svg
from covshift.theory.examples import four_rooms
from covshift.validation import Vector

STREAMS, STEPS = 100, 1000
"""Logged trajectories, and steps of each."""


class Rooms(NamedTuple):
    """Estimates from steps of a uniformly random policy, with the exact answers beside them.

    Attributes:
        difference: the new policy's reward per step minus that of the data, with both estimates.
        true_value: the new policy's exact reward per step.
        ratio: the estimated c of each cell.
        true_ratio: the exact one.
        weights: how often the random policy is in each cell.
    """

    difference: Difference
    true_value: float
    ratio: Vector
    true_ratio: Vector
    weights: Vector

    @property
    def ratio_error(self) -> float:
        """The root of the mean squared error of the ratio, relative to the root of its mean square."""
        error, size = (self.ratio - self.true_ratio) ** 2, self.true_ratio**2
        return float(np.sqrt(self.weights @ error / (self.weights @ size)))


def estimate_rooms(seed: int) -> Rooms:
    """Logs a random policy, and asks what a policy that walks to the goal would earn and where it would be."""
    problem = four_rooms()
    logs = simulate_logs(problem.mdp, problem.mu, STEPS, STREAMS, np.random.default_rng(seed))
    states = np.arange(problem.mdp.num_states)
    return Rooms(
        compare_policies(logs, problem.pi, objective="average", seed=seed),
        float(problem.d_pi @ problem.mdp.r_pi(problem.pi)),
        estimate_ratio(logs, problem.pi).ratio(states),
        problem.c_star(),
        problem.d_mu,
    )


def draw_rooms(found: Rooms) -> str:
    """The estimated ratio beside the exact one."""
    with house_style():
        figure, axes = panels(2, height=3.4)
        for panel, (title, values) in zip(
            axes,
            {"estimated from random steps": found.ratio, "exact": found.true_ratio}.items(),
            strict=True,
        ):
            image = draw_map(panel, values, title, "RdBu_r", LogNorm(0.01, 100))
        figure.colorbar(image, ax=axes, shrink=0.8, label="c(s)")
        return to_svg(figure, "The estimated and the exact ratio of each cell")
