"""The page in a real browser, driven over Chromium's DevTools pipe: no driver package is needed."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covshift.records import RunFolder
from covshift.report.charts import say
from covshift.report.figures_page import render_report

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
]
SECONDS = 240


class Browser:
    """A Chromium with one tab. Messages are JSON with a zero byte after each, on descriptors 3 and 4."""

    def __init__(self, program: str, profile: Path) -> None:
        read_commands, self._write = os.pipe()
        self._read, write_answers = os.pipe()
        # Descriptors beyond 4, so that giving the child its 3 and 4 overwrites none of them.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_commands, write_answers)]
        script = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (*theirs, read_commands, write_answers):
            os.close(end)
        self._buffer, self._count = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        attached = self.do("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **parameters: Any) -> Any:
        """Sends a command and waits for its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> Any:
        ends = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, ends - time.monotonic()))
            assert ready, f"Chromium did not answer in {SECONDS} s"
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, width: int, height: int = 900) -> None:
        """Opens a page in a window of this size and waits until it is loaded."""
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.events.clear()
        self.do("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is, after scrolling to it."""
        found = self.evaluate(
            f"(() => {{ const e = document.querySelector({selector!r});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const b = e.getBoundingClientRect();"
            " return {x: b.x, y: b.y, width: b.width, height: b.height}; })()"
        )
        assert isinstance(found, dict)
        return found

    def mouse(self, kind: str, x: float, y: float) -> None:
        """A real pointer event."""
        button = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def click(self, selector: str) -> None:
        """A click into the middle of an element."""
        box = self.box(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def press(self, key: str) -> None:
        """A key, down and up."""
        for kind in ("keyDown", "keyUp"):
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        found = self.do("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def complaints(self) -> list[Any]:
        """Errors of the console, exceptions, and everything that was asked of a network."""
        return [
            event
            for event in self.events
            if event["method"]
            in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
            or (
                event["method"] == "Network.requestWillBeSent"
                and not event["params"]["request"]["url"].startswith(("file:", "data:"))
            )
        ]

    def close(self) -> None:
        """Ends the browser, with the processes that it started."""
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        assert not os.environ.get("CI"), "CI must have a browser: .ci/run installs chromium"
        pytest.skip("no chromium on this machine: install Debian's chromium to run this test")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(figure: Any, new_run: Callable[..., RunFolder], tmp_path: Path) -> Path:
    runs = [
        new_run(tmp_path / f"run{seed}", seed=seed, diverged=seed == 1, ordered=seed == 0)
        for seed in range(2)
    ]
    path = tmp_path / "page.html"
    path.write_text(render_report([figure], runs), encoding="utf-8")
    return path


CURVES, BARS = "#figure-1 .charts:nth-of-type(2)", "#figure-1 .charts:nth-of-type(3)"
TIP = f"document.querySelector('{CURVES} .wide .tip')"
PHONE_TIP = f"document.querySelector('{CURVES} .narrow .tip')"


def pixel_of(browser: Browser, arm: int, update: int, kind: str = "wide") -> tuple[float, float]:
    """Where a point of an arm's curve is on the screen, from the chart's own numbers."""
    box = browser.box(f"{CURVES} .{kind} svg.chart")
    script = f"document.querySelector('{CURVES} .{kind} script').textContent"
    curves = browser.evaluate(f"JSON.parse({script})")
    k = [texts[0] for texts in curves[arm]["texts"]].index(f"updates: {update:,}")
    x, y = curves[arm]["points"][k]
    scale = box["width"] / {"wide": 920, "narrow": 440}[kind]
    return box["x"] + x * scale, box["y"] + y * scale


@pytest.mark.parametrize("width", [1200, 390])
def test_page_opens_without_errors_and_fits_the_width(
    browser: Browser, page: Path, width: int
) -> None:
    browser.open(page, width)
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('svg.chart')].filter(svg => svg.clientWidth > 0)"
    assert browser.evaluate(f"{shown}.length") == 5
    # No text of a chart runs out of its picture, and none is smaller than can be read.
    smallest = browser.evaluate(
        f"Math.min(...{shown}.flatMap(svg => [...svg.querySelectorAll('text')]).map("
        "text => text.getBoundingClientRect().height))"
    )
    assert smallest >= 10
    inside = browser.evaluate(
        f"{shown}.flatMap(svg => [...svg.querySelectorAll('text')]).every(text => {{"
        " const a = text.getBoundingClientRect(), b = text.closest('svg').getBoundingClientRect();"
        " return a.left >= b.left - 1 && a.right <= b.right + 1 && a.bottom <= b.bottom + 1; })"
    )
    assert inside
    assert browser.screenshot().startswith(b"\x89PNG")


def test_hovering_shows_the_numbers_of_a_curve(browser: Browser, page: Path, figure: Any) -> None:
    browser.open(page, 1200)
    assert browser.evaluate(f"{TIP}.hidden")
    browser.mouse("mouseMoved", *pixel_of(browser, 1, 15_000))
    assert not browser.evaluate(f"{TIP}.hidden")
    told = browser.evaluate(f"{TIP}.innerText").split("\n")
    arm = figure["panels"][0]["arms"][1]
    assert told[0] == "corrected"
    assert told[1] == "updates: 15,000"
    middle, low, high = (say(arm[name][3]) for name in ("middle", "low", "high"))
    assert told[2] == f"interquartile mean: {middle} (3 of 3 runs)"
    assert told[3] == f"interval: {low} to {high}"
    assert told[4:] == [f"seed {k}: {say(run['y'][3])}" for k, run in enumerate(arm["runs"])]
    browser.mouse("mouseMoved", *pixel_of(browser, 0, 40_000))
    assert browser.evaluate(f"{TIP}.innerText").startswith("plain\nupdates: 40,000")
    browser.mouse("mouseMoved", *pixel_of(browser, 1, 40_000))
    told = browser.evaluate(f"{TIP}.innerText")
    assert "(2 of 3 runs)" in told
    assert "seed 1: diverged" in told
    browser.mouse("mouseMoved", 1, 1)
    assert browser.evaluate(f"{TIP}.hidden")
    assert browser.complaints() == []


def test_tooltip_stays_inside_the_chart(browser: Browser, page: Path) -> None:
    for width, kind in ((1200, "wide"), (390, "narrow")):
        browser.open(page, width)
        for update in (0, 30_000, 60_000):
            browser.mouse("mouseMoved", *pixel_of(browser, 1, update, kind))
            place = f"{CURVES} .{kind}"
            tip, chart = browser.box(f"{place} .tip"), browser.box(f"{place} svg.chart")
            assert tip["width"] > 100
            assert tip["x"] >= chart["x"] - 1
            assert tip["x"] + tip["width"] <= chart["x"] + chart["width"] + 1


def test_numbers_stay_after_a_touch(browser: Browser, page: Path) -> None:
    browser.open(page, 390)
    x, y = pixel_of(browser, 1, 20_000, "narrow")
    browser.do("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.do("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert browser.evaluate(f"{PHONE_TIP}.innerText").startswith("corrected\nupdates: 20,000")
    assert not browser.evaluate(f"{PHONE_TIP}.hidden")


def test_arrow_keys_move_along_and_between_curves(browser: Browser, page: Path) -> None:
    browser.open(page, 1200)
    browser.press("Tab")  # From here on focus is shown, as for a reader without a mouse.
    browser.evaluate(f"document.querySelector('{CURVES} .wide svg.chart').focus()")
    assert browser.evaluate(f"{TIP}.innerText").startswith("plain\nupdates: 60,000")
    browser.press("ArrowLeft")
    assert browser.evaluate(f"{TIP}.innerText").startswith("plain\nupdates: 55,000")
    browser.press("ArrowDown")
    assert browser.evaluate(f"{TIP}.innerText").startswith("corrected\nupdates: 55,000")
    browser.press("Escape")
    assert browser.evaluate(f"{TIP}.hidden")


def is_shown(browser: Browser, part: str) -> Any:
    """Whether a part of the wide chart is drawn."""
    found = f"document.querySelector('{CURVES} .wide svg.chart {part}')"
    return browser.evaluate(f"getComputedStyle({found}).display") != "none"


def test_the_legend_switches_arms_and_single_runs(browser: Browser, page: Path) -> None:
    browser.open(page, 1200)
    assert is_shown(browser, ".arm-1.middle")
    assert not is_shown(browser, ".arm-1.run")
    browser.click(f"{CURVES} .wide button[data-arm=corrected]")
    assert not is_shown(browser, ".arm-1.middle")
    assert is_shown(browser, ".arm-0.middle")
    # What is switched off cannot be read; the nearest of the others is.
    browser.mouse("mouseMoved", *pixel_of(browser, 1, 15_000))
    assert browser.evaluate(f"{TIP}.innerText").startswith("plain\n")
    browser.click(f"{CURVES} .wide button[data-arm=corrected]")
    browser.click(f"{CURVES} .wide button.each-run")
    assert is_shown(browser, ".arm-1.middle")
    assert is_shown(browser, ".arm-1.run")
    assert browser.complaints() == []


def test_the_page_follows_a_dark_screen(browser: Browser, page: Path) -> None:
    browser.open(page, 1200)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.evaluate(paper)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.do("Emulation.setEmulatedMedia", features=[dark])
    assert light == "rgb(255, 255, 255)"
    assert browser.evaluate(paper) == "rgb(22, 26, 34)"
    chart = f"document.querySelector('{CURVES} .wide svg.chart')"
    assert browser.evaluate(f"getComputedStyle({chart}).backgroundColor") == light
    browser.do("Emulation.setEmulatedMedia", features=[])


def test_hovering_shows_the_count_of_a_bar(browser: Browser, page: Path, figure: Any) -> None:
    browser.open(page, 1200)
    box = browser.box(f"{BARS} svg.chart .bar")
    browser.mouse("mouseMoved", box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = browser.evaluate(f"document.querySelector('{BARS} .tip').innerText")
    assert told.startswith(f"Learned ratio\n{say(figure['histograms'][0]['counts'][0])} from ")


def test_a_picture_of_the_gallery_enlarges_and_closes(
    browser: Browser, page: Path, figure: Any
) -> None:
    browser.open(page, 390)
    small = browser.box(".gallery button:nth-of-type(2) img")
    browser.click(".gallery button:nth-of-type(2)")
    assert browser.evaluate("document.getElementById('enlarged').open")
    assert browser.box("#enlarged img")["width"] > 3 * small["width"]
    assert browser.evaluate("document.querySelector('#enlarged p').innerText") == "c = 2.75"
    shown = browser.evaluate("document.querySelector('#enlarged img').src")
    assert shown == figure["galleries"][0]["frames"][1]["uri"]
    browser.click("#enlarged button")
    assert not browser.evaluate("document.getElementById('enlarged').open")
    assert browser.complaints() == []


def test_folded_parts_are_printed(browser: Browser, page: Path) -> None:
    browser.open(page, 1200)
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    browser.evaluate(
        "window.addEventListener('beforeprint', () => {"
        " window.printed = document.querySelectorAll('details[open]').length; })"
    )
    printed = base64.b64decode(browser.do("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")
    assert browser.evaluate("window.printed") == 1
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
