import csv
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from covshift.errors import InputError
from covshift.estimation import evaluate_policy
from covshift.experiments.estimation.convergence import convergence
from covshift.experiments.estimation.domains import four_rooms_domain, taxi_domain
from covshift.experiments.estimation.figures import summarize
from covshift.experiments.estimation.games import breakout_features, cart_pole_domain
from covshift.experiments.estimation.study import Outcome, run
from covshift.experiments.estimation.sweep import SCALES, VARIANTS, Row, cells


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("study"), scale="smoke", console=Console(quiet=True))


def test_every_variant_answers_in_every_domain_that_it_is_for(outcome: Outcome) -> None:
    finite = {"Four rooms", "Taxi", "Garnet"}
    answered = {(row.domain, row.variant) for row in outcome.rows if not row.failure}
    for domain in (*finite, "CartPole", "Breakout (MinAtar)"):
        for variant in VARIANTS:
            if variant.table is None or variant.table == (domain in finite):
                assert (domain, variant.title) in answered
    assert {row.sweep for row in outcome.rows} == {"size", "distance", "ratio_discount"}


def test_records_are_the_rows(outcome: Outcome) -> None:
    with (outcome.page.parent / "estimates.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    assert len(records) == len(outcome.rows)
    assert tuple(records[0]) == Row._fields
    assert float(records[5]["value"]) == pytest.approx(outcome.rows[5].value, rel=1e-6)
    assert (outcome.page.parent / "convergence.csv").read_text().count("\n") > 20


def test_page_is_self_contained(outcome: Outcome) -> None:
    page = outcome.page.read_text()
    loads = re.findall(r'(?:src|href)="([^"#]*)"', page)
    assert all(load.startswith("data:") for load in loads)
    assert page.count("<svg role=") == 6
    assert "covshift reproduce estimation --scale smoke --out DIR" in page
    assert not list(outcome.page.parent.rglob("*.partial"))
    assert len(list((outcome.page.parent / "figures").glob("*.svg"))) == 6


def test_a_summary_counts_what_covers() -> None:
    made = [
        Row("size", "d", "discounted", 1, 0.5, 1.0, seed, "MWL", value, 1.0, 2.0, low, 9.0, 0.5, why)
        for seed, value, low, why in [(0, 2.0, 0.0, ""), (1, 5.0, 4.0, ""), (2, np.nan, 0.0, "no")]
    ]  # fmt: skip
    (found,) = summarize(made)
    # Errors ½ and 2 of what is at stake; one of two intervals holds 1.
    assert (found.error, found.coverage, found.milliseconds) == (1.25, 0.5, 500.0)
    assert (found.failures, found.runs) == (1, 3)


def test_a_taxi_delivers() -> None:
    taxi = taxi_domain()
    mdp, pi = taxi.problem.mdp, taxi.problem.pi
    assert mdp.d_0 is not None
    # From cell 5 with a passenger waiting in corner 0 for corner 3: 2 steps, pick, 3 steps, drop.
    best = pi.argmax(axis=1)
    state, rewards, kernel = 5 * 6 + 0 * 2 + 0, [], mdp.dense_kernel()
    while True:
        rewards.append(float(mdp.r[state, best[state]]))
        if kernel[state, best[state]].sum() == 0:
            break
        state = int(kernel[state, best[state]].argmax())
    assert rewards == [-0.05] * 6 + [1.0]
    assert taxi.truth(1.0, average=False) > taxi.truth(0.0, average=False)


def test_truth_of_a_game_is_that_of_its_policy() -> None:
    game = cart_pole_domain(rollouts=200)
    rng = np.random.default_rng(0)
    logs = game.logs(2000, rng)
    assert logs.num_transitions >= 2000
    found = evaluate_policy(
        logs, game.policy(0.0), estimator="behavior", discount=game.discount, interval=None
    )
    # Means of 80 and 200 returns, whose deviation is about 3.
    assert found.value == pytest.approx(game.truth(0.0, average=False), abs=1.2)


def test_features_of_breakout_see_where_things_are() -> None:
    grid = np.zeros((1, 10, 10, 4), dtype=bool)
    grid[0, 9, 4, 0] = grid[0, 6, 7, 1] = grid[0, 5, 6, 2] = True
    grid[0, 1:4, :, 3] = True
    row = breakout_features(grid)[0]
    np.testing.assert_allclose(row[:7], [1, 4 / 9, 7 / 9, 6 / 9, 3 / 9, 1 / 9, 1])


def test_cells_hold_the_middle_fixed() -> None:
    scale = SCALES["small"]
    made = cells(scale)
    assert {cell.distance for cell in made if cell.sweep == "size"} == {0.5}
    assert {cell.size for cell in made if cell.sweep == "distance"} == {2_000}
    assert {cell.objective for cell in made if cell.sweep == "ratio_discount"} == {"average"}
    assert four_rooms_domain().truth(1.0, average=True) > four_rooms_domain().truth(
        0.0, average=True
    )


def test_convergence_has_a_point_for_every_method(outcome: Outcome) -> None:
    ratios = {point.name for point in outcome.points if point.kind == "ratio"}
    assert {"empirical", "td", "least-squares", "semi-gradient", "simplex"} <= ratios
    values = {point.name for point in convergence((300,), 1) if point.kind == "value"}
    assert len(values) == 11


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "paper"}, "scale must be smoke or small, but it is paper"),
        ({"out": Path(__file__)}, "is a file; name a folder"),
    ],
)
def test_bad_input(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        run(**({"out": tmp_path, "console": Console(quiet=True)} | options))  # type: ignore[arg-type]
