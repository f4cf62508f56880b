"""What a run folder holds, written and read; no torch."""

from covshift.records.metrics import (
    COLUMNS,
    NOTHING,
    MetricsFile,
    Row,
    Written,
    invariant,
    possible_means,
    read_metrics,
    support_warning,
)
from covshift.records.run_folder import Provenance, RunFolder, Status, find_runs

__all__ = [
    "COLUMNS",
    "NOTHING",
    "MetricsFile",
    "Provenance",
    "Row",
    "RunFolder",
    "Status",
    "Written",
    "find_runs",
    "invariant",
    "possible_means",
    "read_metrics",
    "support_warning",
]
