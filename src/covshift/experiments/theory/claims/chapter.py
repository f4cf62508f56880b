"""A chapter of claims, in which each claim is the function that measures by how much a case violates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

import numpy as np

from covshift.experiments.theory.claim import Claim

CaseT = TypeVar("CaseT")
Draw = Callable[[np.random.Generator], CaseT]
Violation = Callable[[CaseT], float]


@final
class Chapter:
    """Collects claims in the order in which they are defined.

    Attributes:
        claims: the claims so far.
    """

    def __init__(self) -> None:
        self.claims: list[Claim[Any]] = []

    def theorem(
        self, id: str, hypothesis: str, draw: Draw[CaseT], **options: Any
    ) -> Callable[[Violation[CaseT]], Violation[CaseT]]:
        """Makes a function a theorem, which no case violates; its docstring is the statement.

        Args:
            id: short name, unique.
            hypothesis: what the cases have in common.
            draw: draws one case.
            **options: `tolerance` (1e-7), `cases` (300) and `broken_by` of `Claim`.
        """

        def add(violation: Violation[CaseT]) -> Violation[CaseT]:
            statement = violation.__doc__ or ""
            self.claims.append(Claim(id, statement, hypothesis, draw, violation, **options))
            return violation

        return add

    def refuted(
        self, id: str, hypothesis: str, draw: Draw[CaseT], tolerance: float = 1e-2, cases: int = 300
    ) -> Callable[[Violation[CaseT]], Violation[CaseT]]:
        """Makes a function a counterexample: its docstring is a statement that some case violates clearly.

        Args:
            id: short name, unique.
            hypothesis: what the cases have in common.
            draw: draws one case.
            tolerance: what counts as clearly: more than this.
            cases: how many cases the study draws.
        """

        def add(violation: Violation[CaseT]) -> Violation[CaseT]:
            statement = f"Refuted: {violation.__doc__}"
            self.claims.append(
                Claim(id, statement, hypothesis, draw, violation, True, tolerance, cases)
            )
            return violation

        return add
