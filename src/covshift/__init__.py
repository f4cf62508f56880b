"""covshift: learn the covariate shift d_π/d_μ by bootstrapping, and put it to work.

From logged data:
    estimate_ratio, evaluate_policy, compare_policies, compare_estimators
In an agent of your own:
    RatioReplay (a replay that learns the ratio and draws by it), RatioLearner with RatioOptions, PrioritizedSampler
In Stable-Baselines3's DQN:
    covshift.integrations.stable_baselines3: RatioReplayBuffer, PrioritizedReplayBuffer
With d3rlpy:
    covshift.integrations.d3rlpy: export_d3rlpy, import_d3rlpy
Runs of `covshift train`:
    load_run
Packages:
    estimation, integrations, learners, rules, theory

All of them are imported when they are first used, so that `import covshift` is fast.
"""

from __future__ import annotations

import importlib

from covshift.version import __version__

TYPE_CHECKING = False  # Importing typing would take longer than the rest.
if TYPE_CHECKING:
    from typing import Any

_MODULES = {
    "PrioritizedSampler": "covshift.data.samplers",
    "RatioLearner": "covshift.learners.deep",
    "RatioOptions": "covshift.config.training",
    "RatioReplay": "covshift.integrations",
    "compare_estimators": "covshift.estimation",
    "compare_policies": "covshift.estimation",
    "estimate_ratio": "covshift.estimation",
    "evaluate_policy": "covshift.estimation",
    "load_run": "covshift.runs",
}
"""Where each function or class comes from."""

__all__ = [
    "PrioritizedSampler",
    "RatioLearner",
    "RatioOptions",
    "RatioReplay",
    "__version__",
    "compare_estimators",
    "compare_policies",
    "estimate_ratio",
    "estimation",
    "evaluate_policy",
    "integrations",
    "learners",
    "load_run",
    "rules",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in __all__:
        return importlib.import_module(f"covshift.{name}")
    raise AttributeError(f"module 'covshift' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
