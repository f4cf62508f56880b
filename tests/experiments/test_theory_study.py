import csv
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from covshift.cli.main import main
from covshift.experiments.experiment import Outcome
from covshift.experiments.theory.claims import CLAIMS
from covshift.experiments.theory.study import check_theory
from covshift.experiments.theory.survey import survey


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "deep" / "theory"
    outcome = check_theory(out, Console(quiet=True), problems=20)
    claims = f"{len(CLAIMS)} of {len(CLAIMS)} claims hold."
    assert outcome == Outcome(out / "index.html", claims)
    return out


def test_there_is_one_record_per_claim_and_all_hold(folder: Path) -> None:
    records = json.loads((folder / "theory.json").read_text())
    assert [record["id"] for record in records] == [claim.id for claim in CLAIMS]
    for record in records:
        assert set(record) == {"id", "statement", "hypothesis", "cases", "worst", "holds"}
        assert record["holds"], record
        assert record["cases"] > 0


def test_survey_is_written_and_agrees_with_b1(folder: Path) -> None:
    with (folder / "weighting.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 * 2 * 4
    assert {row["generator"] for row in rows} == {"Dirichlet(0.3)", "Garnet(6, 3, 2)"}
    assert all(float(row["radius 1/c"]) < 1 for row in rows)
    first = next(survey(1))
    assert float(rows[0]["radius uniform"]) == pytest.approx(first.radius[0], rel=1e-4)


def test_page_is_self_contained(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    loads = re.findall(r'(?:src|href)="([^"#]*)"', page)
    assert all(load.startswith("data:") for load in loads)
    assert page.count("<svg role=") == 9
    assert f"{len(CLAIMS)} of {len(CLAIMS)} claims hold" in page
    assert not list(folder.glob("*.partial"))


def test_a_claim_that_does_not_hold_ends_the_command_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = "covshift.experiments.theory.study"
    wrong = replace(CLAIMS[0], refutes=not CLAIMS[0].refutes, cases=1)
    monkeypatch.setattr(f"{study}.CLAIMS", [wrong])
    monkeypatch.setattr(f"{study}.GROUPS", {"group": [wrong]})
    monkeypatch.setattr(f"{study}.draw_exhibits", lambda *_: [])
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "theory", "--scale", "smoke", "--out", str(tmp_path)])
    assert stop.value.code == 1
    said = capsys.readouterr()
    assert f"0 of 1 claims hold. The page: {tmp_path / 'theory' / 'index.html'}" in said.out
    assert said.err == f"These do not hold: {wrong.id}\n"


def test_page_opens_in_a_browser(folder: Path, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        assert not os.environ.get("CI"), "CI must have a browser: .ci/run installs chromium"
        pytest.skip("no chromium on this machine: install Debian's chromium to run this test")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--enable-logging=stderr",
        "--virtual-time-budget=2000",
        "--window-size=400,900",
        "--dump-dom",
    ]
    done = subprocess.run(
        [chromium, *flags, f"--user-data-dir={tmp_path}", (folder / "index.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    assert done.stdout.count('<tr id="claim-') == len(CLAIMS)
