"""Views of training runs where there is no terminal, and on one."""

import io
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from covshift.records import RunFolder
from covshift.report.live import SweepView, TrainingView, watch_runs


def test_a_training_run_prints_a_line_per_row_of_metrics() -> None:
    text = io.StringIO()
    with TrainingView(Console(file=text, width=200), "run", 100, 1000) as view:
        view.tick(101, None)
        view.tick(200, {"update": 200, "score": 1.5, "mean_ratio": 0.99})
    (line,) = text.getvalue().splitlines()
    assert line.startswith("update 200/1,000 · score 1.50 · mean c under μ 0.990 · ")
    assert line.endswith(" left")


def test_a_terminal_shows_the_newest_numbers_with_their_meaning() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with TrainingView(console, "my run", 0, 100) as view:
        view.tick(50, {"update": 50, "score": 2.5})
        view.tick(100, {"update": 100, "mean_ratio": 1.01})
    shown = text.getvalue()
    assert "my run" in shown
    assert "100/100" in shown
    assert "2.50" in shown  # The last score stays when a row has none.
    assert "mean over the last evaluation's episodes" in shown


def test_a_terminal_warns_of_values_at_the_end_of_their_support() -> None:
    for share, warned in ((0.2, True), (0.04, False)):
        text = io.StringIO()
        console = Console(file=text, force_terminal=True, width=160)
        with TrainingView(console, "my run", 0, 100) as view:
            view.tick(50, {"update": 50, "edge_share": share})
        shown = text.getvalue()
        assert f"{share:.1%}" in shown
        assert ("warning: 20 % of the probability is on the outermost atoms" in shown) == warned


def test_a_sweep_prints_each_run_once_when_it_ends(
    new_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    runs = [new_run(tmp_path / "a"), new_run(tmp_path / "b", diverged=True)]
    text = io.StringIO()
    with SweepView(Console(file=text, width=200), ["a", "b"], [300, 300]) as view:
        view.show(runs, [])
        view.show(runs, [])
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    # A diverged run needs no more updates: 300 of a, 150 of b.
    assert lines[0].startswith("a: finished after 300 updates · 450/450 updates · ")
    assert lines[1].startswith("b: diverged after 150 updates · ")


def test_a_sweep_shows_a_bar_per_running_run_on_a_terminal(
    new_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    runs = [new_run(tmp_path / "a"), new_run(tmp_path / "b")]
    runs[1].write_status("running", 60)
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with SweepView(console, ["a", "b"], [300, 300]) as view:
        view.show(runs, [1])
    assert "1/2 runs · 360/600 updates" in text.getvalue()
    assert "60/300" in text.getvalue()


def test_runs_are_watched_until_all_have_ended(
    tmp_path: Path, new_run: Callable[..., RunFolder]
) -> None:
    run = new_run(tmp_path / "first")
    other = new_run(tmp_path / "second", seed=1)
    run.write_status("running", 100)
    pauses: list[float] = []

    def train(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            run.write_status("finished", 300)

    text = io.StringIO()
    watch_runs(Console(file=text, width=200), tmp_path, pause=train)
    lines = text.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in lines] == [
        "first",
        other.path.name,
        "first",
        f"2 of 2 runs under {tmp_path} have ended",
    ]
    assert "running 100/300" in lines[0]
    assert "finished 300/300" in lines[2]
    assert len(pauses) == 2


def test_watching_ends_quietly_when_it_is_interrupted(
    tmp_path: Path, new_run: Callable[..., RunFolder]
) -> None:
    new_run(tmp_path / "run").write_status("running", 100)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    text = io.StringIO()
    watch_runs(Console(file=text, force_terminal=True, width=200), tmp_path, pause=interrupt)
    assert "0 of 1 runs" in text.getvalue()
