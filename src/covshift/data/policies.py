"""Policies by name: `uniform | file:P.npy | run:DIR,epsilon=E | module:function`."""

from __future__ import annotations

import hashlib
import io
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.array_files import read_array
from covshift.errors import InputError, reason_of

GRAMMAR = "uniform | file:P.npy | run:DIR,epsilon=E | module:function"
_TOLERANCE = 1e-5


class Policy(Protocol):
    """Probabilities of actions for a batch of observations."""

    @property
    def needs_observations(self) -> bool:
        """Whether the probabilities depend on the observations."""

    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """batch × actions."""

    def description(self) -> dict[str, str]:
        """What identifies the policy in a manifest, without a path of this machine."""


@final
@dataclass(frozen=True)
class Uniform:
    """Each action with the same probability."""

    num_actions: int
    needs_observations: bool = False

    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """The same for every observation."""
        return np.full((len(observations), self.num_actions), 1.0 / self.num_actions)

    def description(self) -> dict[str, str]:
        """Its name."""
        return {"policy": "uniform"}


@final
@dataclass(frozen=True, eq=False)
class Table:
    """A table of states × actions; observations are state numbers or one-hot vectors."""

    table: NDArray[np.float64]
    sha256: str
    needs_observations: bool = True

    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """The row of each state; of an observation that is all zeros, the first row."""
        numbers = observations.ndim == 1 and observations.dtype.kind in "iu"
        one_hot = observations.ndim == 2 and observations.dtype.kind in "iub"
        if not (numbers or one_hot):
            raise InputError(
                "a policy table needs observations that are state numbers or one-hot vectors"
            )
        states = observations if numbers else observations.argmax(axis=-1)
        if states.size and int(states.max()) >= len(self.table):
            raise InputError(
                f"state {states.max()} is beyond the {len(self.table)} rows of the policy table"
            )
        return np.asarray(self.table[states.astype(np.int64)])

    def description(self) -> dict[str, str]:
        """The hash of the file."""
        return {"policy": "file", "sha256": self.sha256}


@final
@dataclass(frozen=True, eq=False)
class Function:
    """A function of a batch of observations, checked at every call."""

    name: str
    function: Callable[[NDArray[Any]], NDArray[np.float64]]
    num_actions: int
    needs_observations: bool = True

    def probabilities(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """What the function returns."""
        try:
            rows = np.asarray(self.function(observations), dtype=np.float64)
        except (Exception, SystemExit) as error:  # Whatever a function raises that is no policy.
            raise InputError(
                f"{self.name} is no policy, since it cannot be called with a batch of observations: "
                f"{reason_of(error)}"
            ) from error
        if rows.shape != (len(observations), self.num_actions):
            raise InputError(
                f"{self.name} returned shape {rows.shape}, but ({len(observations)}, "
                f"{self.num_actions}) is needed"
            )
        return _checked(self.name, rows)

    def description(self) -> dict[str, str]:
        """Its name."""
        return {"policy": self.name}


def parse_policy(text: str, num_actions: int) -> Policy:
    """The policy with this name.

    Raises:
        InputError: the name does not follow the grammar, or what it names is not a policy.
    """
    kind, separator, rest = text.partition(":")
    if text == "uniform":
        return Uniform(num_actions)
    if kind == "run" and separator:
        # Loaded by its name, since a saved run needs torch and this room does not.
        load = pkgutil.resolve_name("covshift.runs.saved:load_policy")
        return cast(Policy, load(rest, num_actions))
    if kind == "file" and separator:
        return _load_table(rest, num_actions)
    if separator and kind and rest:
        return Function(text, import_function("policy", text), num_actions)
    raise InputError(f"'{text}' is not a policy; say {GRAMMAR}")


def policy_modules(names: Iterable[str]) -> list[str]:
    """The modules that policies of these names would import."""
    parts = [name.partition(":") for name in names]
    return [kind for kind, separator, _ in parts if separator and kind not in ("run", "file")]


def import_function(what: str, text: str) -> Callable[..., Any]:
    """The function `module:function`; modules in the working directory are found too.

    Args:
        what: what the function is for, as the error message calls it.
        text: module and function.

    Raises:
        InputError: it cannot be imported, or is not a function.
    """
    function = import_object(what, text)
    if not callable(function):
        raise InputError(f"the {what} '{text}' is not a function, but {type(function).__name__}")
    return cast(Callable[..., Any], function)


def import_object(what: str, text: str) -> Any:
    """What `module:name` refers to, as `import_function`; it need not be a function."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return pkgutil.resolve_name(text)
    except (Exception, SystemExit) as error:  # Whatever the module raises while it is imported.
        raise InputError(f"the {what} '{text}' cannot be imported: {reason_of(error)}") from error


def _load_table(path: str, num_actions: int) -> Table:
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise ValueError("it is not an ordinary file")
        data = Path(path).read_bytes()
        table = read_array(io.BytesIO(data), len(data))
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(
            f"the policy file {path} cannot be read: {error}; it must hold one array of numbers, as np.save writes it"
        ) from error
    if table.ndim != 2 or table.shape[1] != num_actions or not len(table):
        raise InputError(
            f"the policy file {path} has shape {table.shape}, but (states, {num_actions}) is needed"
        )
    rows = _checked(path, np.asarray(table, dtype=np.float64))
    return Table(rows, hashlib.sha256(data).hexdigest())


def _checked(name: str, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of probabilities, scaled to sums of exactly 1."""
    sums = rows.sum(axis=1)
    bad = ~np.isfinite(sums) | (rows < 0).any(axis=1) | ~(np.abs(sums - 1) < _TOLERANCE)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(f"{name}: row {row} is not a probability vector: {rows[row]}")
    return np.asarray(rows / sums[:, None])
