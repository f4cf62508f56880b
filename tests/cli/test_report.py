import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covshift.cli.main import main
from covshift.records import RunFolder


def test_report_writes_a_page_without_torch(
    figure: dict[str, Any], new_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "figure.json").write_text(json.dumps(figure))
    new_run(tmp_path / "runs" / "mine")
    page = tmp_path / "deep" / "page.html"
    code = (
        "import sys; from covshift.cli.main import main\n"
        f"main(['report', {str(tmp_path)!r}, '--out', {str(page)!r}])\n"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 figure and 1 run without one. The page: {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_bad_figure_is_a_warning_of_one_sentence(
    figure: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "figure.json").write_text(json.dumps(figure))
    del figure["rule"]
    (tmp_path / "figure.json").write_text(json.dumps(figure))
    page = tmp_path / "page.html"
    main(["report", str(tmp_path), "--out", str(page)])
    reason = f"{tmp_path / 'figure.json'}: the file lacks the key 'rule'"
    said = capsys.readouterr()
    assert said.err == f"covshift: warning: unreadable figure: {reason}\n"
    assert said.out == f"1 figure and 0 runs without one. The page: {page}\n"
    assert str(tmp_path / "figure.json") in page.read_text()
