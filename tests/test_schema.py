"""JSON files as typed values."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from covshift.errors import InputError
from covshift.schema import read_json


@dataclass(frozen=True)
class Leaf:
    """A plain dataclass, as the configuration is made of."""

    steps: int = 1
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, but it is {self.steps}")


@dataclass(frozen=True)
class Tree:
    """A dataclass of dataclasses."""

    name: str
    leaf: Leaf = field(default_factory=Leaf)
    leaves: list[Leaf] = field(default_factory=list)
    limit: float | None = None
    named: dict[str, Leaf] = field(default_factory=dict)
    maybe: Leaf | None = None


def test_a_file_becomes_a_tree_of_dataclasses(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text('{"name": "x", "leaf": {"names": ["p"], "rate": 2}, "leaves": [{"steps": 3}]}')
    assert read_json(path, Tree) == Tree("x", Leaf(rate=2.0, names=("p",)), [Leaf(steps=3)])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "the file lacks the key 'name'"),
        ({"name": 3}, "name must be a valid string, but it is 3"),
        ({"name": "x", "leaf": 3}, "leaf must be an object, but it is 3"),
        (
            {"name": "x", "leaf": {"steps": "3"}},
            "leaf.steps must be a valid integer, but it is '3'",
        ),
        (
            {"name": "x", "leaf": {"steps": 1.5}},
            "leaf.steps must be a valid integer, but it is 1.5",
        ),
        ({"name": "x", "leaf": {"rate": True}}, "leaf.rate must be a valid number, but it is True"),
        ({"name": "x", "limit": float("nan")}, "limit must be a finite number, but it is nan"),
        ({"name": "x", "limit": float("inf")}, "limit must be a finite number, but it is inf"),
        ({"name": "x", "leaves": [{}, {"kind": "c"}]}, "leaves[1].kind must be 'a' or 'b', but it"),
        (
            {"name": "x", "leaf": {"step": 1}},
            "leaf has the unknown key 'step'; did you mean 'steps'",
        ),
        (
            {"name": "x", "leaves": [{"other": 1}]},
            "leaves[0] has the unknown key 'other'; it may have steps, rate, kind, names",
        ),
        ({"name": "x", "named": {"k": {"other": 1}}}, "named.k has the unknown key 'other'"),
        ({"name": "x", "maybe": {"other": 1}}, "maybe has the unknown key 'other'"),
        ({"name": "x", "leaf": {"steps": 0}}, "leaf: steps must be at least 1, but it is 0"),
        ({"name": "x", "leaf": {"steps": 10**30}}, "10000000000000000000… is too large a number"),
        (None, "the file must hold an object, but it is null"),
    ],
)
def test_content_that_does_not_fit_is_refused_in_one_sentence(
    value: Any, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError) as refused:
        read_json(path, Tree)
    assert str(refused.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refused.value)


def test_bad_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    with pytest.raises(InputError, match=r"tree\.json cannot be read: No such file"):
        read_json(path, Tree)
    for text, message in (
        ('{"name": ', "not valid JSON: EOF while parsing"),
        ("[" * 100_000 + "]" * 100_000, "not valid JSON: recursion limit exceeded"),
        ('{"name": "x", "limit": 1' + "0" * 5000 + "}", "not valid JSON: number out of range"),
        (json.dumps({"name": "\udcff"}).replace("\\udcff", "\\ud800"), "not valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=rf"tree\.json: {message}"):
            read_json(path, Tree)
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(InputError, match=r"tree\.json: not valid JSON"):
        read_json(path, Tree)
