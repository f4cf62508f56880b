from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from covshift.cli.main import main
from covshift.experiments.demo.study import Arm, _verdict, run
from covshift.records import find_runs


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


def test_the_demo_trains_and_shows_it(tmp_path: Path) -> None:
    sizes = {"transitions": 3000, "updates": 30, "seeds": 1, "workers": 2}
    page = run(tmp_path, console=Console(), **sizes)
    text = page.read_text()
    parsed = Page()
    parsed.feed(text)
    assert parsed.counts["img"] == 24
    assert parsed.fetched == []
    assert "One seed each cannot tell" in text
    assert [found.status()["status"] for found in find_runs(tmp_path)] == ["finished"] * 2
    ratios = np.loadtxt(tmp_path / "ratios.csv", delimiter=",", skiprows=1)
    assert (ratios[:, 1] >= 0).all()
    # The same call finds all done and writes the same page.
    assert run(tmp_path, console=Console(), **sizes).read_text() == text


def test_the_verdict_counts_seeds() -> None:
    def arm(*ends: float) -> Arm:
        return Arm("x", 0, [(np.arange(3.0), np.full(3, end)) for end in ends])

    assert "1.00 more" in _verdict(arm(1.0, 1.2), arm(2.0, 2.2))
    assert "more than twice" in _verdict(arm(1.0, 1.2), arm(2.0, 2.2))
    assert "do not show a difference" in _verdict(arm(1.0, 3.0), arm(2.0, 2.6))
    assert "0.50 less" in _verdict(arm(2.0), arm(1.5))


def test_bad_sizes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, message in (
        ("--seeds", "seeds must be at least 1, but it is 0"),
        ("--updates", "num_updates must lie between 1 and 10,000,000,000, but it is 0"),
    ):
        with pytest.raises(SystemExit):
            main(["demo", "--out", str(tmp_path), flag, "0"])
        assert message in capsys.readouterr().err
