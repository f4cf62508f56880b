"""The documentation builds without a warning, its links lead somewhere, and its examples run as printed."""

import doctest
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from covshift.cli.main import main

DOCS = Path(__file__).parent.parent / "docs"
PACKAGES = (
    "covshift",
    "covshift.data",
    "covshift.estimation",
    "covshift.integrations",
    "covshift.learners",
    "covshift.rules",
    "covshift.theory",
    "covshift.theory.examples",
)
PAGES = sorted(
    path
    for path in (DOCS / "start.md", *DOCS.glob("*/*.md"))
    if ">>>" in path.read_text() and path.name != "agent.md"
)


class Page(HTMLParser):
    """The links, the files and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        elif tag in ("script", "img", "link") and (given.get("src") or given.get("href")):
            self.loaded.append(given.get("src") or given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-b", "html"]
    done = subprocess.run([*sphinx, DOCS, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path: Page(path.read_text()) for path in folder.rglob("*.html")}


def test_links_lead_somewhere(site: dict[Path, Page]) -> None:
    assert len(site) > 30
    for path, page in site.items():
        for link in (*page.links, *page.loaded):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = unquote(link.split("?")[0]).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), (path.name, link)
            if anchor and target in site:
                assert anchor in site[target].ids, (path.name, link)


def test_pages_load_nothing_from_the_network(site: dict[Path, Page]) -> None:
    for path, page in site.items():
        assert not [file for file in page.loaded if "//" in file], path.name
    mathematics = next(page for path, page in site.items() if path.name == "theory.html")
    assert any("tex-svg.js" in file for file in mathematics.loaded)


def test_plain_symbols_of_documents_are_set_with_subscripts(site: dict[Path, Page]) -> None:
    (path,) = (path for path in site if path.name == "results.html")
    text = path.read_text()
    assert "E<sub>μ</sub>[c]" in text
    assert "E_μ" not in text
    assert ">right_size<" in text  # Code is left alone.


def test_every_document_is_in_the_navigation(site: dict[Path, Page]) -> None:
    (home,) = (path for path in site if path.name == "index.html")
    linked = {link.partition("#")[0] for link in site[home].links}
    for path in DOCS.rglob("*.md"):
        page = path.relative_to(DOCS).with_suffix(".html").as_posix()
        assert page in linked or page == "index.html", page


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_described_and_has_an_example(
    package: str, site: dict[Path, Page]
) -> None:
    described = set().union(*(page.ids for page in site.values()))
    examples = "\n".join(
        example.source + example.want
        for path in DOCS.rglob("*.md")
        for example in doctest.DocTestParser().get_examples(path.read_text())
    )
    module = importlib.import_module(package)
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            continue
        assert re.search(rf"\b{name}\b", examples + (inspect.getdoc(thing) or "")), name
        if inspect.isclass(thing) or inspect.isfunction(thing):
            homes = [f"{where}.{name}" for where in (package, *PACKAGES)]
            assert described & set(homes), name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_examples_run_as_printed(path: Path) -> None:
    done = doctest.testfile(str(path), module_relative=False)
    assert done.attempted > 0
    assert done.failed == 0


def test_the_training_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorials/agent.md").read_text()
    for part in re.split(r"(?m)^## ", text):
        for command in re.findall(r"(?m)^\$ covshift (.*)$", part):
            main(shlex.split(command))
        examples = doctest.DocTestParser().get_doctest(part, {}, "agent.md", None, None)
        assert doctest.DocTestRunner().run(examples).failed == 0
    assert (tmp_path / "out/page.html").exists()
    assert (tmp_path / "out/run.gif").exists()
