"""covshift: learn the covariate shift d_π/d_μ by bootstrapping, and put it to work.

The rooms are imported when they are first used, so that `import covshift` costs nothing.
"""

import importlib
from typing import Any

from covshift.version import __version__

__all__ = [
    "__version__",
    "compare_estimators",
    "estimate_ratio",
    "estimation",
    "evaluate_policy",
    "learners",
    "rules",
    "theory",
]

_ROOMS = ("estimation", "learners", "rules", "theory")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"covshift.{name}")
    if name in __all__:
        return getattr(importlib.import_module("covshift.estimation"), name)
    raise AttributeError(f"module 'covshift' has no attribute '{name}'")
