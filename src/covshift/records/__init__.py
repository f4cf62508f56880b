"""What a run folder holds, written and read; no torch."""

from covshift.records.metrics import (
    COLUMNS,
    MetricsFile,
    Row,
    invariant,
    possible_means,
    read_metrics,
    support_warning,
)
from covshift.records.run_folder import Provenance, RunFolder, Status, find_runs

__all__ = [
    "COLUMNS",
    "MetricsFile",
    "Provenance",
    "Row",
    "RunFolder",
    "Status",
    "find_runs",
    "invariant",
    "possible_means",
    "read_metrics",
    "support_warning",
]
