"""Every claim of the study: theorems hold on drawn cases, and counterexamples refute."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims import CLAIMS
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.report.page import typeset

THEOREMS = [claim for claim in CLAIMS if not claim.refutes]
COUNTEREXAMPLES = [claim for claim in CLAIMS if claim.refutes]


@pytest.mark.parametrize("claim", THEOREMS, ids=lambda claim: claim.id)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_theorem_holds(claim: Claim[Any], seed: int) -> None:
    assert claim.violation(claim.draw(np.random.default_rng(seed))) <= claim.tolerance


@pytest.mark.parametrize("claim", COUNTEREXAMPLES, ids=lambda claim: claim.id)
def test_counterexample_refutes(claim: Claim[Any]) -> None:
    finding = claim.check(seed=1)
    assert finding.holds
    assert finding.worst > claim.tolerance


def test_every_claim_states_what_it_claims() -> None:
    for claim in CLAIMS:
        assert claim.statement.endswith("."), claim.id
        assert "\n" not in claim.statement, claim.id
        assert claim.statement.startswith("Refuted: ") == claim.refutes, claim.id
        assert claim.hypothesis, claim.id


def test_the_page_typesets_every_symbol_of_a_claim() -> None:
    for claim in CLAIMS:
        html = typeset(claim.statement) + typeset(claim.hypothesis)
        assert not {"_", "^"} & set(html), (claim.id, html)


def test_a_chapter_collects_functions_as_claims() -> None:
    chapter = Chapter()

    @chapter.theorem("small", "uniform x", lambda rng: rng.random(), broken_by="half", cases=20)
    def small(x: float) -> float:
        """x < 1."""
        return x - 1.0

    @chapter.refuted("half", "uniform x", lambda rng: rng.random(), tolerance=0.1)
    def half(x: float) -> float:
        """x < ½."""
        return x - 0.5

    theorem, counterexample = chapter.claims
    assert (theorem.statement, counterexample.statement) == ("x < 1.", "Refuted: x < ½.")
    assert (theorem.tolerance, theorem.cases, theorem.broken_by) == (1e-7, 20, "half")
    assert (counterexample.tolerance, counterexample.refutes) == (0.1, True)
    assert small(2.0) == 1.0
    assert all(claim.check().holds for claim in chapter.claims)


def test_each_broken_hypothesis_has_its_counterexample() -> None:
    refuting = {claim.id for claim in COUNTEREXAMPLES}
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    for claim in THEOREMS:
        assert claim.broken_by is None or claim.broken_by in refuting, claim.id


def test_every_erratum_is_settled_by_a_claim() -> None:
    ids = " ".join(claim.id + " " + claim.statement for claim in CLAIMS)
    for number in range(1, 19):
        assert f"E{number}-" in ids or f"(E{number})" in ids, number


def test_a_wrong_claim_does_not_hold() -> None:
    wrong = Claim("wrong", "x < 0.9", "uniform x", lambda rng: rng.random(), lambda x: x - 0.9)
    assert not wrong.check().holds
    assert Claim("right", "x < 1", "", lambda rng: rng.random(), lambda x: x - 1.0).check().holds
    for refutes in (False, True):
        silent = Claim("nan", "", "", lambda rng: 0.0, lambda x: float("nan"), refutes=refutes)
        with pytest.raises(FloatingPointError, match="a case of nan has the violation nan"):
            silent.check()


def test_findings_repeat_with_the_seed() -> None:
    claim = THEOREMS[0]
    assert claim.check(3, cases=5) == claim.check(3, cases=5)
    assert claim.check(3, cases=5).worst != claim.check(4, cases=5).worst
