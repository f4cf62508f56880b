"""The study: checks all claims, draws all figures, writes the records and the page."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from covshift.errors import InputError
from covshift.experiments.theory.claim import Finding
from covshift.experiments.theory.claims import CLAIMS, GROUPS
from covshift.experiments.theory.figures import (
    Draw,
    approximation,
    deadly,
    gradients,
    iterates,
    matching,
    mixing,
    moduli,
    rooms,
    weighting,
)
from covshift.experiments.theory.survey import (
    ESTIMATE_ERRORS,
    GENERATORS,
    RATIO_DISCOUNTS,
    WEIGHTINGS,
    SurveyRow,
    survey,
)
from covshift.files import whole_file, write_text
from covshift.progress import track
from covshift.report.page import render
from covshift.report.plots import house_style, to_svg
from covshift.validation import check_count, check_seed
from covshift.version import __version__


class Outcome(NamedTuple):
    """What a study came to."""

    findings: list[Finding]
    page: Path


def run(out: Path, *, seed: int = 0, problems: int = 3000, console: Console) -> Outcome:
    """Checks everything and writes `theory.json`, `weighting.csv` and `index.html` into `out`.

    Args:
        out: folder, made where it is missing; files of an earlier study are replaced.
        seed: of the claims' cases and of the survey.
        problems: how many problems each generator of the survey draws.
        console: for the progress bars.
    """
    check_count("problems", problems)
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)

    findings = [claim.check(seed) for claim in track(console, "claims", CLAIMS, len(CLAIMS))]
    write_text(out / "theory.json", json.dumps([f.record() for f in findings], indent=2) + "\n")

    count = problems * len(GENERATORS) * len(RATIO_DISCOUNTS)
    rows = list(track(console, "survey of weightings", survey(problems, seed), count))
    _write_survey(out / "weighting.csv", rows)

    draws: list[Draw] = [
        rooms.draw,
        mixing.draw,
        iterates.draw,
        approximation.draw,
        deadly.draw,
        gradients.draw,
        lambda: weighting.draw(rows),
        moduli.draw,
        matching.draw,
    ]
    exhibits = []
    for draw in track(console, "figures", draws, len(draws)):
        with house_style():
            exhibit = draw()
            exhibits.append(exhibit._asdict() | {"svg": to_svg(exhibit.figure, exhibit.title)})

    by_id = {finding.id: finding for finding in findings}
    page = render(
        "theory.html.j2",
        holding=sum(finding.holds for finding in findings),
        total=len(findings),
        exhibits=exhibits,
        groups={title: [by_id[claim.id] for claim in group] for title, group in GROUPS.items()},
        command=f"covshift theory --out DIR --seed {seed} --problems {problems}",
        version=__version__,
    )
    write_text(out / "index.html", page)
    return Outcome(findings, out / "index.html")


def _write_survey(path: Path, rows: Iterable[SurveyRow]) -> None:
    with whole_file(path) as partial, partial.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["generator", "ratio_discount"]
            + [f"radius {weighting}" for weighting in WEIGHTINGS]
            + ["radius source c, tabular"]
            + [f"{name} {w}" for name in ("mean ratio", "distance") for w in ("uniform", "1/c")]
            + [f"radius 1/c, error {error}" for error in ESTIMATE_ERRORS]
        )
        for row in rows:
            numbers = (*row.radius, row.source_tabular_radius, *row.mean_ratio, *row.distance)
            writer.writerow(
                [row.generator, row.ratio_discount]
                + [f"{number:.6g}" for number in (*numbers, *row.estimated_radius)]
            )
