"""covshift: learn the covariate shift d_π/d_μ by bootstrapping, and put it to work.

The rooms, and the names that stand for jobs, are imported when they are first used, so that `import covshift` costs
nothing.
"""

import importlib
from typing import Any

from covshift.version import __version__

_ROOMS = ("estimation", "learners", "rules", "theory")
_NAMES = {
    "RatioLearner": "covshift.learners.deep",
    "compare_estimators": "covshift.estimation",
    "estimate_ratio": "covshift.estimation",
    "evaluate_policy": "covshift.estimation",
    "load_run": "covshift.runs",
}

__all__ = [
    "RatioLearner",
    "__version__",
    "compare_estimators",
    "estimate_ratio",
    "estimation",
    "evaluate_policy",
    "learners",
    "load_run",
    "rules",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"covshift.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'covshift' has no attribute '{name}'")
