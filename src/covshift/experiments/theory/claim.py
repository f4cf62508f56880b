"""A claim: how to draw a case that meets its hypothesis, and by how much the case violates it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import numpy as np

CaseT = TypeVar("CaseT")


@final
@dataclass(frozen=True)
class Claim(Generic[CaseT]):
    """A statement that is checked on many random cases.

    A theorem holds if no case violates it. A counterexample is a claim of its own: its statement says
    what it refutes, and it holds if at least one case violates the refuted form clearly.

    Args:
        id: short name, unique.
        statement: what is claimed.
        hypothesis: what the cases have in common.
        draw: draws one case.
        violation: by how much the case violates the statement, or for a counterexample the refuted
            form; 0 or less where it does not.
        refutes: whether this is a counterexample.
        tolerance: what counts as violated: more than this.
        cases: how many the study draws.
        broken_by: id of the counterexample that shows that the hypothesis is needed.
    """

    id: str
    statement: str
    hypothesis: str
    draw: Callable[[np.random.Generator], CaseT]
    violation: Callable[[CaseT], float]
    refutes: bool = False
    tolerance: float = 1e-7
    cases: int = 300
    broken_by: str | None = None

    def check(self, seed: int = 0, cases: int | None = None) -> Finding:
        """Draws the cases from the claim's own random stream and reports the worst."""
        rng = np.random.default_rng([seed, zlib.crc32(self.id.encode())])
        count = self.cases if cases is None else cases
        violations = [self.violation(self.draw(rng)) for _ in range(count)]
        worst = float(np.max(violations))
        if not np.isfinite(worst):
            raise FloatingPointError(f"a case of {self.id} has the violation {worst}")
        return Finding(
            id=self.id,
            statement=self.statement,
            hypothesis=self.hypothesis,
            cases=count,
            worst=worst,
            holds=worst > self.tolerance if self.refutes else worst <= self.tolerance,
        )


@final
@dataclass(frozen=True)
class Finding:
    """The result of checking a claim, as written into `theory.json`.

    Attributes:
        cases: how many were drawn.
        worst: the largest violation; for a counterexample, of the form that it refutes.
        holds: whether the claim stands.
    """

    id: str
    statement: str
    hypothesis: str
    cases: int
    worst: float
    holds: bool
