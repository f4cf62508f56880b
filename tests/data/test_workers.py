import time
from contextlib import closing
from pathlib import Path

import pytest

from covshift.data.workers import JobPool
from covshift.errors import InputError

JOBS = """
import os, pathlib

def touch(number, progress):
    progress(number)
    pathlib.Path(__file__).with_name(f"done-{number}").touch()
    return 10 * number

def die(number, progress):
    os._exit(1)
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "numbered_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def done(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("done-*")}


def test_jobs_are_done_ahead_but_never_beyond_their_number(jobs: Path) -> None:
    from numbered_jobs import touch  # type: ignore[import-not-found]

    reported: list[int] = []
    with closing(JobPool(touch, 4, workers=1, ahead=2, progress=reported.append)) as pool:
        assert pool.result(0) == 0
        deadline = time.monotonic() + 120
        while done(jobs) != {"done-0", "done-1", "done-2"}:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert [pool.result(number) for number in (1, 2, 3)] == [10, 20, 30]
    assert done(jobs) == {"done-0", "done-1", "done-2", "done-3"}
    assert sum(reported) == 0 + 1 + 2 + 3


def test_a_killed_worker_is_reported_with_what_to_do(jobs: Path) -> None:
    from numbered_jobs import die

    with closing(JobPool(die, 3, workers=1, ahead=0)) as pool:
        for number in (0, 1):  # The second job cannot even be started.
            with pytest.raises(InputError, match="killed; run the same command again to continue"):
                pool.result(number)
