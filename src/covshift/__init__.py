"""covshift: learn the covariate shift d_π/d_μ by bootstrapping, and put it to work.

The packages and functions that users need are imported when they are first used, so that `import covshift` is fast.
"""

import importlib
from typing import Any

from covshift.version import __version__

_MODULES = {
    "RatioLearner": "covshift.learners.deep",
    "compare_estimators": "covshift.estimation",
    "estimate_ratio": "covshift.estimation",
    "evaluate_policy": "covshift.estimation",
    "load_run": "covshift.runs",
}
"""Where each function or class comes from."""

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
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in __all__:
        return importlib.import_module(f"covshift.{name}")
    raise AttributeError(f"module 'covshift' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
