import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covshift.data.sum_tree import FAN_OUT, SumTree
from covshift.errors import InputError


class NaiveTree:
    """The same by a plain list."""

    def __init__(self, capacity: int) -> None:
        self.priorities = [0.0] * capacity

    def set(self, items: list[int], values: list[float]) -> None:
        for item, value in zip(items, values, strict=True):
            self.priorities[item] = value

    def draw(self, u: float) -> int:
        target, running = u * sum(self.priorities), 0.0
        for item, priority in enumerate(self.priorities):
            running += priority
            if priority > 0 and target < running:
                return item
        return max(item for item, priority in enumerate(self.priorities) if priority > 0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 255, 256, 257, 70_000]))
def test_the_tree_draws_what_a_plain_list_draws(seed: int, capacity: int) -> None:
    rng = np.random.default_rng(seed)
    tree, naive = SumTree(capacity), NaiveTree(capacity)
    for _ in range(8):
        count = int(rng.integers(1, 20))
        items = rng.integers(0, capacity, count)
        # Whole numbers, so that sums are exact in any order, and many zeros.
        values = rng.integers(0, 4, count).astype(float)
        tree.set(items, values)
        naive.set(items.tolist(), values.tolist())
        tree.check_valid()
        assert tree.total == sum(naive.priorities)
        np.testing.assert_array_equal(tree.get(items), [naive.priorities[i] for i in items])
        if tree.total > 0:
            uniforms = rng.random(5)
            assert tree.draw(uniforms).tolist() == [naive.draw(u) for u in uniforms]
    np.testing.assert_array_equal(tree.priorities(), naive.priorities)


def test_items_of_priority_zero_are_never_drawn() -> None:
    tree = SumTree(1000)
    tree.set([3, 700], [1e-300, 1.0])
    tree.set([0, 999], [0.0, 0.0])
    edges = np.concatenate([np.linspace(0, 1, 10_001)[:-1], [np.nextafter(1, 0), 0.0]])
    assert set(tree.draw(edges).tolist()) <= {3, 700}
    only = SumTree(FAN_OUT * 3)
    only.set([FAN_OUT * 2 + 5], [0.1])
    assert set(only.draw(edges).tolist()) == {FAN_OUT * 2 + 5}


def test_the_later_of_two_values_for_an_item_counts() -> None:
    tree = SumTree(10)
    tree.set([4, 4, 4], [1.0, 2.0, 3.0])
    assert tree.get([4]).tolist() == [3.0]
    assert tree.total == 3.0


def test_draws_follow_the_priorities() -> None:
    rng = np.random.default_rng(0)
    tree, priorities = SumTree(600), np.random.default_rng(1).random(600) ** 4
    tree.set(np.arange(600), priorities)
    counts = np.bincount(tree.draw(rng.random(400_000)), minlength=600)
    law = priorities / priorities.sum()
    # Five standard errors of a binomial share.
    assert (np.abs(counts / 400_000 - law) < 5 * np.sqrt(law / 400_000) + 1e-6).all()


def test_sums_do_not_drift() -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(300)
    for _ in range(2000):
        tree.set(rng.integers(0, 300, 64), rng.random(64) * 10.0 ** rng.integers(-8, 8))
    tree.set(np.arange(300), 0.1)
    assert tree.total == pytest.approx(30.0, abs=1e-12)


@pytest.mark.parametrize(
    ("items", "values", "message"),
    [
        ([10], [1.0], "item 10 is not among the tree's 10 items"),
        ([-1], [1.0], "item -1 is not among"),
        ([0], [-1.0], r"finite and not negative, but one is -1\.0"),
        ([0], [np.nan], "but one is nan"),
    ],
)
def test_bad_updates_are_refused_and_change_nothing(
    items: list[int], values: list[float], message: str
) -> None:
    tree = SumTree(10)
    tree.set([0], [2.0])
    with pytest.raises(InputError, match=message):
        tree.set(items, values)
    assert tree.total == 2.0
    with pytest.raises(InputError, match="all priorities are 0"):
        SumTree(3).draw(np.array([0.5]))
    with pytest.raises(InputError, match="at least 1, but it is 0"):
        SumTree(0)
