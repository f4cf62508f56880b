"""The documents name things that exist."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import get_args

import pytest

from covshift.estimation.diagnostics import Flag
from covshift.experiments.theory.claims import CLAIMS
from covshift.version import __version__

ROOT = Path(__file__).parent.parent
CLAIM_IDS = {claim.id for claim in CLAIMS}
MAP = (ROOT / "docs/paper-map.md").read_text()


def names(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize(
    "name", sorted({n for n in names(MAP) if re.match(r"(theory|rules|learners)\.(?!json)", n)})
)
def test_symbols_of_the_map_exist(name: str) -> None:
    module, _, attribute = f"covshift.{name}".rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


WALKS = (ROOT / "CONTRIBUTING.md").read_text().split("## Three walks")[1].split("## Manner")[0]


@pytest.mark.parametrize(
    "name",
    sorted({n for n in names(WALKS) if re.fullmatch(r"[a-z]+\.[\w.]+", n) and n != "metrics.csv"}),
)
def test_names_of_the_walks_exist(name: str) -> None:
    pkgutil.resolve_name(f"covshift.{name}")


def test_files_of_the_map_exist() -> None:
    files = [name for name in names(MAP) if name.startswith("tests/")]
    assert files
    for name in files:
        assert (ROOT / name).is_file(), name


def test_every_claim_is_on_the_map_and_in_no_other_spelling() -> None:
    assert set(names(MAP)) >= CLAIM_IDS - {
        "E3-columns", "E10-condition", "E13-norm", "E13-printed-norm", "E18-printed-bar"
    }  # fmt: skip
    for page in ("paper-map", "errata", "theory", "beyond", "matching"):
        for name in names((ROOT / f"docs/{page}.md").read_text()):
            if re.fullmatch(
                r"(E\d+|B\d|theorem|lemma|equation|corollary|proposition)-[\w-]+", name
            ):
                assert name in CLAIM_IDS, name


def test_every_erratum_names_claims_that_exist() -> None:
    text = (ROOT / "docs/errata.md").read_text()
    rows = re.findall(r"^### (E\d+)\. (?:(?!^#).)*?^- Settled by (.*?)\.$", text, re.M | re.S)
    assert [row[0] for row in rows] == [f"E{number}" for number in range(1, 20)]
    for number, settled_by in rows:
        assert names(settled_by), number
        assert set(names(settled_by)) <= CLAIM_IDS, number


def test_one_version_everywhere() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_constraints_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert "torch==2.13.0" in lines


def test_claim_count_in_the_documents_is_right() -> None:
    for page in ("README.md", "CHANGELOG.md", "docs/results.md", "docs/tutorials/theory.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"{len(CLAIMS)} claims" in text, page
        refuting = sum(claim.refutes for claim in CLAIMS)
        assert "counterexamples" not in text or re.search(rf"\b{refuting}\b", text), page


def test_every_flag_of_an_estimate_is_explained() -> None:
    text = (ROOT / "docs/howto/numbers.md").read_text()
    for flag in get_args(Flag):
        assert f"`{flag}`" in text, flag
