"""CSV files of results."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from covshift.files import whole_file


def write_csv(path: Path, rows: Iterable[Iterable[Any]], digits: int | None = None) -> None:
    """Writes rows, the header first, whole or not at all.

    Args:
        path: the file.
        rows: the header and the records.
        digits: to which floats are rounded; all digits if None.
    """

    def shown(value: Any) -> Any:
        return f"{value:.{digits}g}" if digits and isinstance(value, float) else value

    with whole_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([shown(value) for value in row] for row in rows)
