"""Checks all claims, draws all figures, writes the records and the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from covshift.experiments.exhibits import draw_exhibits
from covshift.experiments.experiment import Outcome, RunOptions, ensure_folder
from covshift.experiments.tables import write_csv
from covshift.experiments.theory import PROBLEMS
from covshift.experiments.theory.claims import CLAIMS, GROUPS
from covshift.experiments.theory.figures import (
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
from covshift.files import write_text
from covshift.progress import track
from covshift.report.page import render
from covshift.validation import check_repeats, check_seed
from covshift.version import __version__


def run(folder: Path, options: RunOptions, console: Console) -> Outcome:
    """The study at a scale."""
    return check_theory(folder, console, problems=PROBLEMS[options.scale])


def check_theory(folder: Path, console: Console, *, problems: int, seed: int = 0) -> Outcome:
    """Checks everything and writes `theory.json`, `weighting.csv` and `index.html`.

    Args:
        folder: made if it is missing; files of an earlier study are replaced.
        console: shows progress.
        problems: how many problems each generator of the survey draws.
        seed: for the cases of the claims and for the survey.
    """
    check_repeats("problems", problems)
    check_seed(seed)
    ensure_folder(folder)

    # Quick and slow claims in turn, so that the time left is steady; each draws from a stream of its own.
    mixed = [CLAIMS[k] for k in np.random.default_rng(0).permutation(len(CLAIMS))]
    found = {
        claim.id: claim.check(seed)
        for claim in track(console, "part 1 of 3, claims", mixed, len(mixed))
    }
    findings = [found[claim.id] for claim in CLAIMS]
    write_text(folder / "theory.json", json.dumps([asdict(f) for f in findings], indent=2) + "\n")

    count = problems * len(GENERATORS) * len(RATIO_DISCOUNTS)
    rows = list(track(console, "part 2 of 3, survey of weightings", survey(problems, seed), count))
    write_csv(folder / "weighting.csv", _survey_table(rows), digits=6)

    exhibits = draw_exhibits(
        console,
        [
            rooms.draw,
            mixing.draw,
            iterates.draw,
            approximation.draw,
            deadly.draw,
            gradients.draw,
            partial(weighting.draw, rows),
            moduli.draw,
            matching.draw,
        ],
        "part 3 of 3, figures",
    )
    failing = [finding.id for finding in findings if not finding.holds]
    holding = len(findings) - len(failing)
    by_id = {finding.id: finding for finding in findings}
    page = render(
        "theory.html.j2",
        holding=holding,
        total=len(findings),
        exhibits=exhibits,
        groups={title: [by_id[claim.id] for claim in group] for title, group in GROUPS.items()},
        command=f"covshift theory --out DIR --seed {seed} --problems {problems}",
        version=__version__,
    )
    write_text(folder / "index.html", page)
    return Outcome(
        folder / "index.html",
        f"{holding} of {len(findings)} claims hold.",
        f"These do not hold: {', '.join(failing)}" if failing else "",
    )


def _survey_table(rows: Iterable[SurveyRow]) -> Iterator[list[Any]]:
    yield [
        *("generator", "ratio_discount"),
        *(f"radius {weighting}" for weighting in WEIGHTINGS),
        "radius source c, tabular",
        *(f"{name} {w}" for name in ("mean ratio", "distance") for w in ("uniform", "1/c")),
        *(f"radius 1/c, error {error}" for error in ESTIMATE_ERRORS),
    ]
    for row in rows:
        yield [
            *(row.generator, row.ratio_discount, *row.radius, row.source_tabular_radius),
            *(*row.mean_ratio, *row.distance, *row.estimated_radius),
        ]
