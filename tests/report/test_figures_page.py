import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.records import RunFolder
from covshift.report.charts import draw_curves, draw_histogram, say
from covshift.report.figure_file import read_figure
from covshift.report.figures_page import find_sources, render_report, write_report

VOID = {"meta", "link", "img", "br", "input", "hr"}


class Outline(HTMLParser):
    """Texts by heading, and whether every element is closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append("")
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if any(tag in self.open for tag in ("h1", "h2", "h3", "h4")):
            self.headings[-1] += data
        if any(tag in self.open for tag in ("td", "th")):
            self.cells[-1][-1] += data


def text_of(page: str) -> str:
    page = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))


def test_page_shows_every_part_in_order(figure: Any, tmp_path: Path) -> None:
    page = render_report([figure])
    outline = Outline(page)
    assert [heading.strip() for heading in outline.headings] == [
        "What these runs show",
        "The ratio's discount figure-1-left · small",
        "MinAtar/Breakout-v1",
        "MinAtar/Breakout-v1",  # The same for phones, of which a screen shows one.
        "Learned ratio",
        "Highest c",
        "Invariants of the ratio",
        "Diverged runs",
        "Differences from the paper",
        "Settings that all runs share",
        "Settings that differ",
    ]
    summary = [cell.strip() for cell in outline.cells[1]]
    assert summary == [
        "The ratio's discountfigure-1-left · small",
        "Correcting beats dμ <as it is>.",
        "✓ holds",
        "1.00 (1.00 to 1.00)P(better) · corrected",
    ]
    text = text_of(page)
    for key in ("paper", "found", "rule", "command"):
        assert figure[key] in text, key
    assert "corrected-seed1 (corrected): last measured at 20,000 updates" in text
    assert all(hash in text for hash in figure["hashes"].values())
    assert re.search(r"<ol>\s*<li>MinAtar instead of Atari.</li>", page)
    assert page.count('class="frame"') == 6
    assert "c = 2.75" in text


def test_page_loads_nothing_and_escapes_everything(figure: Any) -> None:
    evil = "</script><script>alert(1)</script><b onload='x'>\"&"
    spots: list[tuple[Any, Any]] = []

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poison(item) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item) for item in value]
        kept = ("holds", "finished", "diverged", "violated", "unordered")
        if isinstance(value, str) and value not in kept and not value.startswith("data:image"):
            spots.append((value, evil))
            return value + evil
        return value

    page = render_report([poison(figure)])
    assert len(spots) > 50
    Outline(page)
    assert page.count("<script>") == 1  # Our own.
    assert "alert(1)</script>" not in page
    assert "<b onload" not in page
    loads = re.findall(r'(?:src|href)="([^"#]*)"', page)
    assert all(load.startswith("data:") for load in loads)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "default-src 'none'" in page


def test_each_verdict_has_its_own_mark(figure: Any) -> None:
    for verdict, shown in (
        ("holds", '<span class="holds">✓ holds</span>'),
        ("does not hold", '<span class="fails">✗ does not hold</span>'),
        ("not enough data", '<span class="unsure">? not enough data</span>'),
    ):
        page = render_report([figure | {"verdict": verdict}])
        assert page.count(shown) == 2
        assert len(re.findall(r'<span class="(holds|fails|unsure)">[✓✗?]', page)) == 2


def test_broken_invariants_are_one_row_per_run_and_kind(figure: Any) -> None:
    outline = Outline(render_report([figure]))
    rows = [row for row in outline.cells if row[1:2] in (["violated"], ["unordered"])]
    assert rows == [
        ["corrected-seed1", "violated", "1 of 1", "5,000", "1.4", "0.2"],
        ["corrected-seed0", "unordered", "2 of 3", "15,000", "1.1", "0.8"],
    ]
    said = "Of 4 evaluations 1 violated an invariant and 2 were unordered"
    assert said in text_of(render_report([figure]))
    many = [figure["invariants"][3] | {"run": f"run{k}"} for k in range(9)]
    page = render_report([figure | {"invariants": many}])
    assert "<summary>9 rows, violations first</summary>" in page
    Outline(page)
    # Of violations the mean that is farthest from 1 is shown, be it too large or too small.
    violated = figure["invariants"][3]
    means = [violated | {"mean_ratio": mean} for mean in (0.05, 0.01, 40.0)]
    outline = Outline(render_report([figure | {"invariants": means}]))
    assert [row[4] for row in outline.cells if row[1:2] == ["violated"]] == ["0.01"]
    good = [row for row in figure["invariants"] if row["state"] == "holds"]
    page = text_of(render_report([figure | {"invariants": good}]))
    assert "All hold in each of 1 evaluations: Eπ[c] ≥ Eμ[c]" in page
    assert "There is nothing to check" in text_of(render_report([figure | {"invariants": []}]))


def test_a_figure_with_empty_lists_is_shown(figure: Any) -> None:
    names = ("panels", "histograms", "galleries", "invariants", "differences")
    bare = figure | {name: [] for name in names} | {"table": {"columns": [], "rows": []}}
    bare |= {"alias": None, "hashes": {}}
    outline = Outline(render_report([bare]))
    assert [heading.strip() for heading in outline.headings] == [
        "What these runs show",
        "The ratio's discount discount-sweep · small",
        "Invariants of the ratio",
        "Diverged runs",
    ]
    assert "neither a figure nor a run" in render_report([])


def test_a_run_that_diverged_at_once_is_listed(figure: Any) -> None:
    figure["panels"][0]["arms"][1]["runs"][1] |= {"x": [], "y": []}
    text = text_of(render_report([figure]))
    assert "corrected-seed1 (corrected): before it was first measured" in text


def test_configuration_is_split_into_common_and_differing(figure: Any) -> None:
    page = render_report([figure])
    assert "<dt>discount</dt><dd>0.99</dd>" in page
    assert "<dt>learn_ratio</dt><dd>yes</dd>" in page
    rows = [row for row in Outline(page).cells if row[0] == "corrected-seed2"]
    assert rows == [["corrected-seed2", "corrected", "2"]]


def points(svg: str, kind: str) -> list[list[tuple[float, float]]]:
    """The points of each path of a kind, in pixels."""
    found = re.findall(rf'<g class="arm arm-\d {kind}">\s*<path d="([^"]*)"', svg)
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", path)]
        for path in found
    ]


def test_curves_end_with_a_cross_where_a_run_diverged(figure: Any) -> None:
    chart = draw_curves(figure["panels"][0], ["plain", "corrected"])
    runs = points(chart.svg, "run")
    # The axis spans 0 to 60,000 updates and pixels 52 to 424.
    assert [run[-1][0] for run in runs] == pytest.approx([424, 424, 424, 424, 176, 424], abs=0.11)
    (cross,) = re.findall(
        r'<g class="arm arm-1 diverged"><title>corrected-seed1 diverged after 20,000</title>'
        r'.*?<use xlink:href="#\w+" x="([\d.]+)" y="([\d.]+)"',
        chart.svg,
        re.S,
    )
    assert tuple(map(float, cross)) == pytest.approx(runs[4][-1], abs=0.11)
    # Higher scores are further up, that is at smaller pixels.
    middles = points(chart.svg, "middle")
    assert middles[1][-1][1] < middles[0][-1][1]
    assert chart.svg.count(' band">') == 2
    assert [entry["label"] for entry in chart.legend] == ["plain", "corrected", "random policy"]


def test_the_script_knows_the_pixels_and_numbers_of_a_curve(figure: Any) -> None:
    chart = draw_curves(figure["panels"][0], ["plain", "corrected"])
    for curve, drawn in zip(chart.curves, points(chart.svg, "middle"), strict=True):
        assert np.ravel(curve["points"]) == pytest.approx(np.ravel(drawn), abs=0.11)
    arm = figure["panels"][0]["arms"][1]
    assert chart.curves[1]["texts"][8] == [
        "updates: 40,000",
        f"interquartile mean: {say(arm['middle'][8])} (2 of 3 runs)",
        f"interval: {say(arm['low'][8])} to {say(arm['high'][8])}",
    ]
    values = [say(run["y"][8]) if len(run["y"]) > 8 else "diverged" for run in arm["runs"]]
    assert chart.curves[1]["runs"][8] == [f"seed {k}: {value}" for k, value in enumerate(values)]
    # A run that has not been measured there, but did not diverge either; and runs that share a seed.
    arm["runs"][2] |= {"x": arm["runs"][2]["x"][:5], "y": arm["runs"][2]["y"][:5]}
    arm["runs"][0]["config"]["seed"] = 1
    chart = draw_curves(figure["panels"][0], ["plain", "corrected"])
    assert chart.curves[1]["texts"][8][2] == "one run has no interval"
    assert chart.curves[1]["runs"][8] == [
        f"corrected-seed0: {values[0]}",
        "corrected-seed1: diverged",
        "corrected-seed2: no value",
    ]


def test_an_arm_with_one_point_is_drawn_as_a_dot(figure: Any) -> None:
    panel = figure["panels"][0]
    one = {name: panel["arms"][0][name][:1] for name in ("x", "middle", "low", "high")}
    panel["arms"] = [panel["arms"][0] | one | {"runs": []}]
    svg = draw_curves(panel, ["plain"]).svg
    assert re.search(r'<g class="arm arm-0 middle">.*?<use [^>]*style="fill: #1b6ca8', svg, re.S)


def test_dollar_signs_are_shown_as_they_are(figure: Any) -> None:
    panel = figure["panels"][0] | {"y": "cost in $, d_μ$"}
    svg = draw_curves(panel, ["plain", "corrected"]).svg
    assert "costin$,d" in "".join(re.sub(r"<[^>]*>", "", svg).split())


def test_an_arm_has_one_color_in_all_panels(figure: Any) -> None:
    panel = figure["panels"][0]
    figure["panels"].append(panel | {"arms": panel["arms"][1:], "title": "second"})
    data = [
        json.loads(part) for part in re.findall(r'json">(.*?)</script>', render_report([figure]))
    ]
    colors = [{curve["label"]: curve["color"] for curve in chart} for chart in data[:2]]
    assert colors[0]["corrected"] == colors[1]["corrected"] != colors[0]["plain"]


def test_level_lines_can_be_told_apart(figure: Any) -> None:
    panel = figure["panels"][0] | {"lines": [{"label": str(k), "y": 1.0 + k} for k in range(2)]}
    chart = draw_curves(panel, ["plain", "corrected"])
    assert len({entry["dash"] for entry in chart.legend[-2:]}) == 2
    assert len(set(re.findall(r"stroke-dasharray: ([\d., ]+)", chart.svg))) == 2


def test_values_that_explode_get_a_logarithmic_axis(figure: Any) -> None:
    panel = figure["panels"][0] | {"lines": []}
    arm = panel["arms"][0] | {"x": [0, 1, 2], "runs": []}
    panel["arms"] = [arm | {name: [0.1, 10.0, 1000.0] for name in ("middle", "low", "high")}]
    chart = draw_curves(panel, ["plain"])
    assert "score (logarithmic)" in chart.svg
    heights = [y for _, y in points(chart.svg, "middle")[0]]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    panel["arms"] = [arm | {name: [-0.1, 10.0, 1000.0] for name in ("middle", "low", "high")}]
    assert "logarithmic" not in draw_curves(panel, ["plain"]).svg


def bars(counts: list[float]) -> list[tuple[float, float]]:
    """Width and height of each bar over [0, 1), [1, 2) and [2, 4), in pixels."""
    svg = draw_histogram(
        {"title": "t", "x": "c(s)", "text": "", "edges": [0, 1, 2, 4], "counts": counts}
    ).svg
    sizes = []
    for path in re.findall(r'<g class="bar">\s*<path d="([^"]*)"', svg):
        x, y = zip(*re.findall(r"[ML] ([\d.]+) ([\d.]+)", path), strict=True)
        sizes.append(tuple(max(map(float, at)) - min(map(float, at)) for at in (x, y)))
    return sizes  # type: ignore[return-value]


def test_histogram_bars_are_as_high_as_their_counts() -> None:
    (narrow, high), (wide, low) = bars([10, 0, 5])
    assert high == pytest.approx(2 * low, abs=0.2)
    assert wide == pytest.approx(2 * narrow, abs=0.2)
    # On a logarithmic axis from half the smallest count: log(2000) against log(20) and log(2).
    heights = [height for _, height in bars([1000, 10, 1])]
    assert heights[1] / heights[2] == pytest.approx(math.log(20) / math.log(2), rel=0.02)
    assert heights[0] / heights[2] == pytest.approx(math.log(2000) / math.log(2), rel=0.02)


def test_the_same_input_gives_the_same_page(figure: Any) -> None:
    assert render_report([figure]) == render_report([json.loads(json.dumps(figure))])


def test_runs_without_a_figure_get_their_own_section(
    figure: Any, new_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    runs = [new_run(tmp_path / f"r{seed}", seed=seed, diverged=seed == 1) for seed in range(3)]
    runs.append(new_run(tmp_path / "other", ratio_discount=0.9, ordered=False))
    assert "scale smoke" not in render_report([], runs)
    page = render_report([figure], runs)
    outline = Outline(page)
    assert "Runs without a figure" in outline.headings
    rows = [row for row in outline.cells if row[0].startswith(str(tmp_path))]
    assert [row[2] for row in rows[:4]] == ["c51-corrected, ratio_discount 0.99"] * 3 + [
        "c51-corrected, ratio_discount 0.9"
    ]
    assert rows[1][4:] == ["divergedthe loss is not finite", "150 of 300", "1.5"]
    assert rows[2][4:] == ["finished", "300 of 300", "3.5"]
    assert rows[4][1:3] == ["unordered", "3 of 3"]
    labels = re.findall(r'aria-label="MinAtar/Breakout-v1: (.*?) against updates', page)
    # The figure's lone panel is drawn for screens and for phones.
    assert labels == ["score"] * 3 + ["mean c over the data", "mean c in episodes of π"]
    charts = [json.loads(part) for part in re.findall(r'json">(.*?)</script>', page)]
    texts, values = charts[3][0]["texts"], charts[3][0]["runs"]
    # Seeds 0, 1 and 2 score 0, 1, 2 at first; from 200 updates on seed 1 is missing.
    assert [text[0] for text in texts] == [f"updates: {x}" for x in (0, 100, 200, 300)]
    assert [text[1] for text in texts] == [
        f"interquartile mean: {text} runs)"
        for text in ("1 (3 of 3", "1.5 (3 of 3", "2 (2 of 3", "2.5 (2 of 3")
    ]
    assert [text[2] for text in texts[2:]] == ["interval: 1 to 3", "interval: 1.5 to 3.5"]
    assert values[3] == ["seed 0: 1.5", "seed 1: diverged", "seed 2: 3.5"]


def test_sources_are_found_once_and_shared_runs_belong_to_their_figure(
    figure: Any, new_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for folder in ("sweep", "again"):
        (out / folder).mkdir(parents=True)
    (out / "sweep" / "figure.json").write_text(json.dumps(figure))
    new_run(out / "runs" / "plain-seed0")  # The figure names it.
    new_run(out / "sweep" / "inner" / "unnamed")  # It lies in the figure's folder.
    new_run(out / "runs" / "mine")
    new_run(tmp_path / "elsewhere" / "plain-seed0")  # Named alike, but of another path.
    sources = find_sources([out, out / "sweep", tmp_path / "elsewhere"])
    assert sources.figures == [figure]
    found = [str(run.path.relative_to(tmp_path)) for run in sources.runs]
    assert found == ["out/runs/mine", "elsewhere/plain-seed0"]
    with pytest.raises(InputError, match=r"neither a figure.json nor a run under .*again"):
        find_sources([out / "again"])
    with pytest.raises(InputError, match="is not a folder"):
        find_sources([tmp_path / "nowhere"])
    with pytest.raises(InputError, match=r"must end in \.html, but it is page\.pdf"):
        write_report(sources, Path("page.pdf"))


def test_one_bad_figure_hides_no_other(
    figure: Any, new_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "figure.json").write_text(json.dumps(figure))
    new_run(tmp_path / "bad" / "mine")  # Its figure cannot show it.
    bad = tmp_path / "bad" / "figure.json"
    bad.write_text(json.dumps(figure | {"verdict": "<maybe>"}))
    sources = find_sources([tmp_path, tmp_path / "bad"])
    assert sources.figures == [figure]
    assert [run.path.name for run in sources.runs] == ["mine"]
    (reason,) = sources.unreadable
    assert reason.startswith(f"{bad}: verdict must be 'holds'")
    page = render_report(*sources)
    Outline(page)
    assert f"unreadable {bad}: verdict must be &#39;holds&#39;" in text_of(page)
    assert "&lt;maybe&gt;" in page
    assert figure["command"] in page
    assert "Runs without a figure" in page
    page = render_report([], [], sources.unreadable)
    assert "neither a figure nor a run" not in page
    assert str(bad) in page


def test_figures_come_in_the_order_of_the_paper(figure: Any, tmp_path: Path) -> None:
    named = (("a", None), ("b", "figure-2"), ("c", "figure-1-left"), ("d", "figure-1-right"))
    for name, alias in named:
        (tmp_path / name).mkdir()
        text = json.dumps(figure | {"name": name, "alias": alias})
        (tmp_path / name / "figure.json").write_text(text)
    assert [found["name"] for found in find_sources([tmp_path]).figures] == ["c", "d", "b", "a"]


def changed(figure: Any, path: str, value: Any) -> Any:
    spot: Any = figure
    *way, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    for key in way:
        spot = spot[key]
    if value is KeyError:
        del spot[last]
    else:
        spot[last] = value
    return figure


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("claim", KeyError, "the file lacks the key 'claim'"),
        ("clam", "x", "the file has the unknown key 'clam'; did you mean 'claim'?"),
        (
            "verdict",
            "maybe",
            "verdict must be 'holds', 'does not hold' or 'not enough data', but it",
        ),
        ("panels/0/arms/1/middle", KeyError, "panels[0].arms[1] lacks the key 'middle'"),
        ("panels/0/arms/1/low", [0.0], "panels[0].arms[1]: these lists must be of one length"),
        (
            "panels/0/arms/0/runs/2/y/0",
            None,
            "panels[0].arms[0].runs[2].y[0] must be a valid number",
        ),
        ("panels/0/arms/0/runs/2/y", [1.0], "panels[0].arms[0].runs[2]: these lists must be of"),
        ("panels/0/arms/0/runs/2/status", "lost", "must be 'finished' or 'diverged', but it is"),
        ("invariants/0/mean_ratio", float("nan"), "mean_ratio must be a finite number, but it is"),
        ("histograms/0/counts", [1], "histograms[0]: 1 counts need 2 edges, but there are 31"),
        (
            "galleries/0/frames/0/uri",
            "http://x/y.png",
            "uri: a picture must begin with data:image/",
        ),
        (
            "galleries/0/frames/0/uri",
            "data:image/png;base64,x' onload='y",
            "uri: a picture must begin with data:image/",
        ),
        ("table/rows/0", ["one"], "table: rows[0] has 1 cells, but there are 6 columns"),
        ("table/rows/0/1", 2.0, "table.rows[0][1] must be a valid string, but it is 2.0"),
        ("differences", "none", "differences must be a valid array, but it is 'none'"),
        ("hashes", [], "hashes must be an object, but it is []"),
        ("alias", 3, "alias must be a valid string, but it is 3"),
        ("headline", "0.72", "headline must be an object, but it is '0.72'"),
    ],
)
def test_a_figure_that_breaks_the_contract_is_refused(
    figure: Any, path: str, value: Any, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "figure.json"
    file.write_text(json.dumps(figure))
    assert read_figure(file) == figure
    file.write_text(json.dumps(changed(figure, path, value)))
    with pytest.raises(InputError) as refused:
        read_figure(file)
    said = str(refused.value)
    assert said.startswith(f"{file}: ")
    assert message in said
    assert "\n" not in said


def test_a_file_that_is_not_a_json_object_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "figure.json"
    for text, message in (("{", "not valid JSON"), ("[]", "the file must be an object")):
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            read_figure(file)
