"""How arguments appear in the help."""

from __future__ import annotations

from typing import Any

import tyro


def optional(metavar: str) -> Any:
    """An option without a default of its own: its text says what happens without it, so that "default: None" is left out."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")
