"""Ratios and policy values from logged data, with intervals and diagnostics."""

from covshift.estimation.arrays import from_arrays, from_trajectories
from covshift.estimation.behavior import balanced_behavior
from covshift.estimation.cluster import logs_on_ray
from covshift.estimation.comparison import Comparison, Difference, ValueEstimate
from covshift.estimation.estimators import ESTIMATORS
from covshift.estimation.features import Affine, RandomFourier, Tabular
from covshift.estimation.fitting import METHODS, register_method
from covshift.estimation.frames import from_frame
from covshift.estimation.inputs import (
    as_logs,
    from_episodes,
    from_minari,
    from_store,
    simulate_logs,
)
from covshift.estimation.logs import Logs, Trajectory
from covshift.estimation.ratio import RatioEstimate, estimate_ratio
from covshift.estimation.values import compare_estimators, compare_policies, evaluate_policy

__all__ = [
    "ESTIMATORS",
    "METHODS",
    "Affine",
    "Comparison",
    "Difference",
    "Logs",
    "RandomFourier",
    "RatioEstimate",
    "Tabular",
    "Trajectory",
    "ValueEstimate",
    "as_logs",
    "balanced_behavior",
    "compare_estimators",
    "compare_policies",
    "estimate_ratio",
    "evaluate_policy",
    "from_arrays",
    "from_episodes",
    "from_frame",
    "from_minari",
    "from_store",
    "from_trajectories",
    "logs_on_ray",
    "register_method",
    "simulate_logs",
]
