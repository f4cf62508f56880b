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


def test_bad_figure_is_one_sentence(
    figure: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del figure["rule"]
    (tmp_path / "figure.json").write_text(json.dumps(figure))
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")])
    assert stop.value.code == 2
    said = f"covshift: {tmp_path / 'figure.json'}: the file lacks the key 'rule'\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "page.html").exists()
