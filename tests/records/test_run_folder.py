"""The plain files of a run: damage and foreign content are named, and one bad run hides no other."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.records import NOTHING, MetricsFile, RunFolder, Written, read_metrics
from covshift.report.figures_page import find_sources, render_report

NewRun = Callable[..., RunFolder]


@pytest.fixture
def sealed(new_run: NewRun, tmp_path: Path) -> RunFolder:
    """A finished run whose metrics were written through to the end."""
    run = new_run(tmp_path / "run")
    run.write_status("finished", 300, written=_written(run))
    return run


def _written(run: RunFolder) -> Written:
    return Written(
        run.metrics_path.stat().st_size, hashlib.sha256(run.metrics_path.read_bytes()).hexdigest()
    )


def read_all(run: RunFolder) -> tuple[Any, ...]:
    return run.config(), run.status(), run.provenance(), run.metrics()


def test_any_flipped_bit_of_a_run_is_seen(sealed: RunFolder) -> None:
    rng = np.random.default_rng(0)
    before = read_all(sealed)
    for name in ("config.json", "status.json", "provenance.json", "metrics.csv"):
        path = sealed.path / name
        sound = path.read_bytes()
        for bit in rng.choice(8 * len(sound), 60, replace=False).tolist():
            damaged = bytearray(sound)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bytes(damaged))
            try:
                after: Any = read_all(sealed)
            except InputError as error:
                assert name in str(error)  # noqa: PT017
            else:
                assert after == before, f"bit {bit} of {name}"
        path.write_bytes(sound)
    assert read_all(sealed) == before


def test_damage_is_not_taken_over_when_the_status_is_written_again(sealed: RunFolder) -> None:
    path = sealed.path / "config.json"
    path.write_text(path.read_text().replace('"batch_size": 32', '"batch_size": 64'))
    sealed.write_status("finished", 300)
    with pytest.raises(InputError, match=r"config\.json is damaged: its hash differs from that in"):
        sealed.config()


def test_a_resume_keeps_what_its_checkpoint_knew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path)
    file.write({"update": 0, "score": 1.0})
    kept = file.written
    file.write({"update": 100, "score": 2.0})
    file.close()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1.0", b"9.0"))
    with pytest.raises(InputError, match="is damaged: its first"):
        MetricsFile(path, kept)
    path.write_bytes(content[: kept.size - 1])
    with pytest.raises(InputError, match="is shorter than it was"):
        MetricsFile(path, kept)
    path.write_bytes(content)
    file = MetricsFile(path, kept)
    assert file.written == kept
    file.close()
    assert path.read_bytes() == content[: kept.size]


def test_a_rewound_run_can_be_read_before_and_after_the_cut(sealed: RunFolder) -> None:
    content = sealed.metrics_path.read_bytes()
    (sealed.path / "status.json.0123abcd.partial").touch()
    sealed.rewind(NOTHING)
    assert len(sealed.metrics()) == 4
    MetricsFile(sealed.metrics_path, NOTHING).close()
    assert sealed.metrics() == []
    assert not list(sealed.path.glob("*.partial"))
    sealed.metrics_path.write_bytes(content)


def test_runs_of_older_versions_have_no_hashes_and_can_be_read(sealed: RunFolder) -> None:
    (sealed.path / "status.json").write_text('{"status": "finished", "update": 300}')
    assert sealed.status() == {"status": "finished", "update": 300}
    assert len(sealed.metrics()) == 4
    (sealed.path / "status.json").unlink()
    assert sealed.status() == {"status": "new", "update": 0}


def test_published_runs_can_be_read() -> None:
    runs = Path(__file__).parents[2] / "results" / "small" / "runs"
    for run in sorted(runs.iterdir())[:10]:
        _, status, _, rows = read_all(RunFolder(run))
        assert status["status"] in ("finished", "diverged")
        assert rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("update,wrong\r\n0,1\r\n", "has the unknown column 'wrong'"),
        ("update,update\r\n0,1\r\n", "has a column twice"),
        ("score\r\n0\r\n", "lacks the column 'update'"),
        ("update,score\r\n0,fine\r\n", "score in line 2 must be a number, but it is 'fine'"),
        ("update,score\r\n,1\r\n", "update in line 2 must be a number, but it is ''"),
        ("update,invariant\r\n0,maybe\r\n", "invariant in line 2 must be holds or violated or"),
        ("update,score\r\n0\r\n", "line 2 has 1 values, but there are 2 columns"),
        ("update,score\r\n0,1,2\r\n", "line 2 has 3 values, but there are 2 columns"),
        ('update,score\r\n0,"1\r\n', "is not a CSV file"),
        ("update,score\r\n0,\ud800\r\n", "is not a CSV file"),
    ],
)
def test_metrics_of_another_form_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InputError, match=message):
        read_metrics(path)


def test_a_row_that_was_not_written_whole_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"update,score\r\n0,1.5\r\n100,2.")
    assert read_metrics(path) == [{"update": 0.0, "score": 1.5}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"env": 3}'),
        ("status.json", '{"status": "done", "update": 1}'),
        ("status.json", "[]"),
        ("metrics.csv", "update,score\r\n0,fine\r\n"),
    ],
)
def test_one_bad_run_hides_no_other(
    name: str, content: str, new_run: NewRun, tmp_path: Path
) -> None:
    new_run(tmp_path / "good")
    bad = new_run(tmp_path / "bad")
    (bad.path / "status.json").write_text('{"status": "finished", "update": 300}')
    (bad.path / name).write_text(content)
    first = bad.summary(tmp_path)
    assert first[4] == "unreadable"
    assert name in first[5]
    page = render_report(*find_sources([tmp_path]))
    assert "unreadable" in page
    assert "finished" in page
    assert name in page


@pytest.mark.parametrize("name", ["config.json", "status.json", "provenance.json"])
def test_unknown_and_missing_keys_are_named(name: str, sealed: RunFolder) -> None:
    (sealed.path / "status.json").write_text('{"status": "finished", "update": 300}')
    path = sealed.path / name
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"surprise": 1}))
    with pytest.raises(InputError, match=rf"{name}: the file has the unknown key 'surprise'"):
        read_all(sealed)
    key = {"config.json": "env", "status.json": "update", "provenance.json": "machine"}[name]
    del value[key]
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=rf"{name}: the file lacks the key '{key}'"):
        read_all(sealed)
