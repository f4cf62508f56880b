"""`metrics.csv`: one row every few updates, without clock times, so that a resumed run writes the same bytes."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, final

from covshift.config.training import RatioOptions
from covshift.errors import InputError
from covshift.theory.bounds import mean_ratio_bounds, mean_ratio_is_possible

Row = dict[str, float | str]

COLUMNS = {
    "update": "updates so far",
    "agent_steps": "4 × updates: the clock of the paper's iterations",
    "value_loss": "mean loss of the value since the last row: C51's cross-entropy, and the conservative penalty where there is one",
    "ratio_loss": "mean squared ratio error since the last row, weighted as it is learned, without η",
    "residual": "mean of target - c on the ratio's batches since the last row: E_μ[target] - E_μ[c]",
    "mean_ratio": "E_μ[c], mean of max(c, 0) on the ratio's batches since the last row",
    "effective_share": "ESS/N = E_μ[c]²/E_μ[c²]: the share of the data that sampling in proportion to c would leave",
    "sampling_share": "ESS/N = 1/(N Σ p²) of the law that transitions are drawn from: stored priorities with their floor, tempering and uniform share",
    "tempering": "exponent τ of the priorities in that law",
    "score": "mean score of the evaluation's episodes, rewards not clipped, ε = evaluation_epsilon",
    "score_deviation": "standard deviation of these scores over episodes",
    "episode_length": "mean length of these episodes, in agent steps",
    "edge_share": "mean probability that the value's distribution has on its two outermost atoms, for the greedy action in states of the data",
    "mean_ratio_pi": "E_π[c], mean of max(c, 0) over states that π itself visits, ε = target_epsilon",
    "ratio_gain": "E_π[c]/E_μ[c]",
    "exact_mean_ratio": "E_μ[c] by episodes of π from starts and from states of μ, without the learned ratio; empty where it cannot be known",
    "calibration_error": "largest relative error of E_μ[c f] by the learned ratio against these episodes, over f = 1, the observation's mean, the value and the ratio itself",
    "invariant": "holds | violated | unordered: see `covshift.records.invariant`; empty where there is no evaluation or no ratio",
}
"""Columns and their meanings; a missing value is an empty field."""

EDGE_LIMIT = 0.05
"""Largest `edge_share` without a warning: beyond it the ends of the support bound what the agent can learn."""

_WORDS = {"invariant": ("holds", "violated", "unordered")}
"""Columns of words; all others hold numbers."""

_ORDER_TOLERANCE = 0.05
"""Share by which E_π[c] may fall below E_μ[c] before that is marked: a few episodes are noisy."""


def possible_means(options: RatioOptions, initial_share: float) -> tuple[float, float]:
    """The least and the most that E_μ[c] can be, whatever π is (B6 bounds the mean by the share of starts).

    Args:
        options: the ratio's semantics and discount.
        initial_share: share of the data's states that start an episode.

    Example:
        >>> low, high = possible_means(RatioOptions(ratio_discount=0.99), 0.1)  # episodes of 10 steps
        >>> round(low, 3), round(high, 1)
        (0.109, 10.9)
        >>> possible_means(RatioOptions(semantics="restart"), 0.1)
        (1.0, 1.0)
    """
    if options.semantics == "restart":
        return 1.0, 1.0
    return mean_ratio_bounds(options.ratio_discount, initial_share)


def invariant(
    mean_ratio: float, mean_ratio_pi: float, options: RatioOptions, initial_share: float
) -> str:
    """Whether a learned ratio has the properties of an exact one: its mean is possible (B6), and larger under π (B3).

    E_μ[c] must lie within `possible_means`; with restarts it must be 1. With restarts, and at γ̂ = 1, E_π[c] ≥ E_μ[c].
    When visits are counted with γ̂ < 1, that order is usual but can fail for a perfect ratio (see the claim
    `B3-order-discounted`), so that it is reported as `unordered`, not `violated`. The same holds where `mean_ratio` is
    a mean over prioritized batches. Means over batches and a few episodes are noisy: 10 % and 5 % are allowed.

    Example:
        >>> invariant(1.0, 0.5, RatioOptions(semantics="visits", ratio_discount=0.99), 0.1)
        'unordered'
        >>> invariant(12.1, 50.0, RatioOptions(semantics="visits", ratio_discount=0.99), 0.1)
        'violated'
        >>> invariant(1.0, 0.5, RatioOptions(semantics="restart"), 0.1)
        'violated'
    """
    restart, is_of_mu = options.semantics == "restart", options.ratio_batch == "uniform"
    if is_of_mu and not mean_ratio_is_possible(mean_ratio, possible_means(options, initial_share)):
        return "violated"
    if mean_ratio_pi >= (1.0 - _ORDER_TOLERANCE) * mean_ratio:
        return "holds"
    must = is_of_mu and (restart or options.ratio_discount == 1.0)
    return "violated" if must else "unordered"


def support_warning(rows: Iterable[Row]) -> str:
    """A warning if the newest evaluation has values at the ends of the support; otherwise nothing.

    Example:
        >>> support_warning([{"update": 1, "edge_share": 0.01}, {"update": 2, "edge_share": 0.31}])
        '31 % of the probability is on the outermost atoms: values reach the end of the support; raise --value-bound'
        >>> support_warning([{"update": 1, "edge_share": 0.31}, {"update": 2, "edge_share": 0.01}])
        ''
    """
    shares = [float(row["edge_share"]) for row in rows if "edge_share" in row]
    if not shares or shares[-1] <= EDGE_LIMIT:
        return ""
    return (
        f"{100 * shares[-1]:.0f} % of the probability is on the outermost atoms: values reach the end of the support; "
        "raise --value-bound"
    )


class Written(NamedTuple):
    """What was written to `metrics.csv` so far: how many bytes, and their hash, which older versions did not record."""

    size: int
    sha256: str | None

    def check(self, path: Path, content: bytes) -> None:
        """Raises InputError unless the content begins with what was written."""
        if len(content) < self.size:
            raise InputError(f"{path} is shorter than it was: {self.size} bytes are needed")
        if self.sha256 not in (None, hashlib.sha256(content[: self.size]).hexdigest()):
            raise InputError(
                f"{path} is damaged: its first {self.size} bytes do not have their hash; restore it from a copy"
            )


NOTHING = Written(0, hashlib.sha256().hexdigest())


@final
class MetricsFile:
    """The metrics of a run, open for appending.

    Args:
        path: the file.
        kept: what to keep; rows behind it were written after the checkpoint that the run resumes from.

    Attributes:
        is_empty: whether there is no row yet.
    """

    def __init__(self, path: Path, kept: Written = NOTHING) -> None:
        size = kept.size
        content = path.read_bytes()[:size] if size else b""
        kept.check(path, content)
        # A run that an older version began keeps the columns that its file starts with.
        head = (
            content.partition(b"\n")[0] + b"\n" if size else (",".join(COLUMNS) + "\r\n").encode()
        )
        self._columns = head.decode(errors="replace").strip().split(",")
        _check_header(path, self._columns)
        self._hash = hashlib.sha256(content)
        self._file = path.open("r+b" if path.is_file() else "w+b")
        self._file.truncate(size)
        self._file.seek(size)
        if size == 0:
            self._append(head)
        self.is_empty = size <= len(head)

    def write(self, row: Row) -> None:
        """Appends a row, and waits until the disk has it."""
        text = io.StringIO()
        known = {n: v for n, v in row.items() if n in self._columns or n not in COLUMNS}
        csv.DictWriter(text, self._columns, restval="").writerow(known)
        self._append(text.getvalue().encode())
        self.is_empty = False
        self._file.flush()
        os.fsync(self._file.fileno())

    @property
    def written(self) -> Written:
        """Bytes so far and their hash."""
        return Written(self._file.tell(), self._hash.hexdigest())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)


def read_metrics(path: Path, written: Written = NOTHING) -> list[Row]:
    """The rows, numbers as numbers; values that are not there are left out.

    A last row that does not end in a newline was not written whole and is left out too.

    Args:
        path: the file.
        written: what the run wrote at least.

    Raises:
        InputError: the file cannot be read, is damaged, or has other columns or values; names the row and the column.
    """
    try:
        if path.exists() and not path.is_file():  # A named pipe would be waited for.
            raise InputError(f"{path} cannot be read: it is not an ordinary file")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    written.check(path, content)
    try:
        text = content[: content.rfind(b"\n") + 1].decode()
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error
    if not lines:
        return []
    _check_header(path, lines[0])
    return [_parse(path, number, lines[0], line) for number, line in enumerate(lines[1:], start=2)]


def _check_header(path: Path, names: list[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InputError(f"{path} has the unknown column {unknown[0][:60]!r}")
    if "update" not in names or len(set(names)) < len(names):
        raise InputError(f"{path} lacks the column 'update', or has a column twice")


def _parse(path: Path, number: int, names: list[str], line: list[str]) -> Row:
    if len(line) != len(names):
        raise InputError(
            f"{path}: line {number} has {len(line)} values, but there are {len(names)} columns"
        )
    row: Row = {}
    for name, text in zip(names, line, strict=True):
        if not text and name != "update":
            continue
        try:
            row[name] = text if text in _WORDS.get(name, ()) else float(text)
        except ValueError:
            wanted = " or ".join(_WORDS.get(name, ("a number",)))
            raise InputError(
                f"{path}: {name} in line {number} must be {wanted}, but it is {text[:60]!r}"
            ) from None
    return row
