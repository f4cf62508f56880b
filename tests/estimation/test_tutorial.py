import doctest
from pathlib import Path


def test_the_tutorial_runs_as_printed() -> None:
    page = Path(__file__).parents[2] / "docs" / "estimation.md"
    done = doctest.testfile(str(page), module_relative=False)
    assert done.attempted > 30
    assert done.failed == 0
