"""Figures as files."""

import copy
from pathlib import Path
from typing import Any

import pytest

from covshift.report.drawing import draw_figure


def drawn(figure: Any, path: Path) -> bytes:
    draw_figure(figure, [path])
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_the_same_figure_gives_the_same_bytes(figure: Any, tmp_path: Path, kind: str) -> None:
    first = drawn(figure, tmp_path / f"a.{kind}")
    assert drawn(copy.deepcopy(figure), tmp_path / f"b.{kind}") == first
    figure["panels"][0]["arms"][0]["middle"][-1] += 1.0
    assert drawn(figure, tmp_path / f"c.{kind}") != first


def test_values_that_explode_get_a_logarithmic_axis(figure: Any, tmp_path: Path) -> None:
    panel = figure["panels"][0]
    before = drawn(figure, tmp_path / "a.svg").decode()
    panel["lines"] = [{"label": "far", "y": 1e6}]
    for part in (part for arm in panel["arms"] for part in (arm, *arm["runs"])):
        for name in part.keys() & {"y", "low", "middle", "high"}:
            part[name] = [abs(value) + 0.1 for value in part[name]]
    # 10⁶ as a power, which a linear axis up to 10⁶ does not have.
    after = drawn(figure, tmp_path / "b.svg").decode()
    assert r"$\mathdefault{10^{6}}$" not in before
    assert r"$\mathdefault{10^{6}}$" in after


def test_every_panel_is_drawn_and_runs_that_diverged_end_in_a_cross(
    figure: Any, tmp_path: Path
) -> None:
    panel = figure["panels"][0]
    figure["panels"] = [panel] * 4  # more than fit side by side
    for arm in panel["arms"]:
        for run in arm["runs"]:
            run["status"] = "finished"
    whole = drawn(figure, tmp_path / "whole.svg").decode()
    assert whole.count('<g id="axes_') == 4
    panel["arms"][0]["runs"][0]["status"] = "diverged"
    crossed = drawn(figure, tmp_path / "crossed.svg").decode()
    lines = [text.count('<g id="line2d_') for text in (whole, crossed)]
    assert lines[1] == lines[0] + 4
