"""How estimates and logs show themselves in a notebook and as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError


def make_frame(columns: Mapping[str, Any]) -> Any:
    """A pandas frame of these columns.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("frames need pandas: pip install pandas") from error
    return pd.DataFrame(dict(columns))


def state_columns(name: str, states: NDArray[Any]) -> dict[str, Any]:
    """States as columns: one of numbers or labels, one per entry of a vector, or one of arrays."""
    if states.ndim == 1:
        return {name: states}
    if states.ndim == 2:
        return {f"{name}_{k}": states[:, k] for k in range(states.shape[1])}
    return {name: list(states)}


def as_html(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with a line per row, for notebooks."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
