import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from covshift.data import Dataset, open_dataset
from covshift.data.collection import Request, collect
from covshift.errors import InputError
from covshift.estimation import as_logs


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    request = Request("MinAtar/Breakout-v1", 900, ("uniform", "uniform"), shard_transitions=300)
    return open_dataset(collect(request, tmp_path_factory.mktemp("data") / "breakout"))


def test_episodes_are_the_rows_of_the_store(dataset: Dataset) -> None:
    column, row = dataset.store.columns, 0
    for episode in dataset:
        steps = len(episode)
        rows = np.arange(row, row + steps + 1)
        assert column["is_initial"][row]
        np.testing.assert_array_equal(episode.observations, dataset.store.states(rows))
        np.testing.assert_array_equal(episode.actions, column["action"][rows[:-1]])
        np.testing.assert_array_equal(episode.mu, column["mu"][rows[:-1]])
        np.testing.assert_array_equal(episode.rewards, column["reward"][rows[1:]])
        assert episode.terminated == column["terminated"][rows[-1]]
        assert episode.truncated == column["truncated"][rows[-1]]
        for name, values in episode.other.items():
            np.testing.assert_array_equal(values, column[name][rows])
        row += steps + 1
    assert row == len(dataset.store)


def test_observations_of_atari_episodes_are_single_frames(tmp_path: Path) -> None:
    data = open_dataset(collect(Request("ALE/Pong-v5", 60, envs=1), tmp_path / "pong"))
    (episode,) = data
    assert episode.observations.shape == (61, 84, 84)
    np.testing.assert_array_equal(
        episode.observations, data.store.states(np.arange(61))[:, -1], strict=True
    )
    assert "uint8 (84, 84), zstd, 4 stacked on reading" in repr(data)


def test_a_dataset_is_indexed_and_sliced_like_a_list(dataset: Dataset) -> None:
    returns = [episode.rewards.sum() for episode in dataset]
    assert len(dataset) == len(returns) == dataset.manifest["totals"]["episodes"]
    assert dataset[3].rewards.sum() == returns[3]
    assert dataset[-1].rewards.sum() == returns[-1]
    for part in (slice(-5, None), slice(2, 9, 3), slice(None, None, -1), slice(4, 4)):
        assert [episode.rewards.sum() for episode in dataset[part]] == returns[part]
        assert len(dataset[part]) == len(returns[part])
    assert dataset[2:9][-2].rewards.sum() == returns[2:9][-2]
    assert dataset.num_transitions == 900
    assert dataset[:2].num_transitions == len(dataset[0]) + len(dataset[1])
    with pytest.raises(IndexError, match=f"there is no episode {len(dataset)}: the dataset has"):
        dataset[len(dataset)]


def test_a_dataset_says_what_it_holds(dataset: Dataset) -> None:
    lines = repr(dataset).splitlines()
    assert lines[0] == f"Dataset {dataset.folder}"
    facts = dict(line.strip().split(maxsplit=1) for line in lines[1:])
    assert facts["environment"] == "MinAtar/Breakout-v1"
    assert facts["transitions"] == f"900 in {len(dataset)} episodes"
    assert facts["actions"] == "3"
    assert facts["observation"] == "bool (10, 10, 4), bits"
    assert facts["policies"] == "uniform, uniform"
    assert facts["size"].endswith("MiB")
    assert f"5 episodes (of {len(dataset)})" in repr(dataset[:5])
    first = dataset[0]
    assert repr(first) == f"Episode({len(first)} steps, return {first.rewards.sum():g}, terminated)"


def test_a_part_of_a_dataset_can_be_estimated_from(dataset: Dataset) -> None:
    whole, part = as_logs(dataset), as_logs(dataset[1:3])
    assert whole.num_transitions == 900
    assert len(part) == 2
    np.testing.assert_array_equal(part.action, [*dataset[1].actions, *dataset[2].actions])
    first = part.states(np.arange(1))[0]
    np.testing.assert_array_equal(first, dataset[1].observations[0])


def test_the_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    (example,) = re.findall(r"```python\n(>>> .*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    collect(Request("covshift/RandomWalk-v0", 300), Path("out/walk"))
    test = doctest.DocTestParser().get_doctest(example, {}, "docs/data.md", None, None)
    report: list[str] = []
    assert not doctest.DocTestRunner().run(test, out=report.append).failed, "".join(report)


def test_a_folder_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a covshift dataset: it has no manifest\.json"):
        open_dataset(tmp_path)
