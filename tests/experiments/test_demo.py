from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from covshift.cli.main import main
from covshift.experiments.comparison.results import RunRecord
from covshift.experiments.demo import Sizes
from covshift.experiments.demo.rooms import estimate_rooms
from covshift.experiments.demo.study import TITLES, Agent, compare, run_demo
from covshift.experiments.experiment import RunOptions
from covshift.records import find_runs
from covshift.theory.examples import four_rooms


class Page(HTMLParser):
    """Counts elements, and notes what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        source = dict(attrs).get("src") or ""
        if source and not source.startswith("data:"):
            self.fetched.append(source)


def test_the_demo_trains_both_agents_and_writes_the_same_page_again(tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    given = (tmp_path, Sizes(3000, 30, 1), RunOptions(), console)
    text = run_demo(*given).page.read_text()
    printed = console.export_text()
    parsed = Page()
    parsed.feed(text)
    assert parsed.counts["img"] == 24
    assert parsed.fetched == []
    assert "SMOKE TEST" in text
    problem = four_rooms()
    exact = f"{problem.d_pi @ problem.mdp.r_pi(problem.pi):.4f}"
    assert f">{exact}<" in text
    assert exact in printed
    assert "One seed each cannot tell" in text
    assert "One seed each cannot tell" in printed
    for arm in ("c51", "c51-matched"):
        record = RunRecord.read(tmp_path / "runs" / f"{arm}-seed0")
        line = next(line for line in printed.splitlines() if TITLES[arm] in line)
        columns = ("score",) if arm == "c51" else ("score", "mean_ratio", "exact_mean_ratio")
        for column in columns:
            assert f"{record.ending(column):.2f}" in line
    assert [found.status()["status"] for found in find_runs(tmp_path)] == ["finished"] * 2
    ratios = np.loadtxt(tmp_path / "ratios.csv", delimiter=",", skiprows=1)
    assert (ratios[:, 1] >= 0).all()
    again = run_demo(*given)
    assert again.page.read_text() == text
    assert again.banner.startswith("SMOKE TEST")


def test_the_value_in_four_rooms_is_near_the_exact_one() -> None:
    found = estimate_rooms(seed=3)
    problem = four_rooms()
    # By hand: the share of steps that π spends in the goal, the only cell with a reward, which is 1.
    goal = int(np.argmax(problem.mdp.r_pi(problem.pi)))
    assert found.true_value == pytest.approx(problem.d_pi[goal])
    new, old = found.difference.new, found.difference.old
    assert new.low < found.true_value < new.high
    assert old.value == pytest.approx(problem.d_mu[goal], rel=0.2)
    assert found.ratio_error < 0.2
    wrong = found._replace(ratio=2 * found.true_ratio)
    assert wrong.ratio_error == pytest.approx(1.0)


def test_the_comparison_of_agents_depends_on_the_number_of_seeds() -> None:
    def agent(*scores: float, diverged: int = 0) -> Agent:
        return Agent("x", [], list(scores), diverged, 1.0, 1.0)

    assert "1.00 more" in compare(agent(1.0, 1.2), agent(2.0, 2.2))
    assert "more than twice" in compare(agent(1.0, 1.2), agent(2.0, 2.2))
    assert "could be chance; run more seeds" in compare(agent(1.0, 3.0), agent(2.0, 2.6))
    assert "0.50 less" in compare(agent(2.0), agent(1.5))
    assert "diverged" not in compare(agent(2.0), agent(1.5))
    assert "2 of its runs diverged, and 1 of the other's" in compare(
        agent(2.0, diverged=1), agent(1.5, diverged=2)
    )


def test_bad_sizes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, message in (
        ("--seeds", "seeds must be at least 1, but it is 0"),
        ("--workers", "workers must be at least 1, but it is 0"),
        ("--updates", "num_updates must lie in [1, 1,000,000,000], but it is 0"),
    ):
        with pytest.raises(SystemExit):
            main(["demo", "--out", str(tmp_path), flag, "0"])
        assert message in capsys.readouterr().err
