"""covshift: learn the covariate shift d_π/d_μ by bootstrapping, and put it to work.

The rooms are imported when they are first used, so that `import covshift` costs nothing.
"""

import importlib
from types import ModuleType

from covshift.version import __version__

__all__ = ["__version__", "learners", "rules", "theory"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"covshift.{name}")
    raise AttributeError(f"module 'covshift' has no attribute '{name}'")
