"""A sequence of tasks out of one data set: which examples each has, and what their inputs are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from cutaway.core.config import build
from cutaway.core.errors import SettingError
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.task_sequence import PermutedSplit, subset, to_tasks


def opened(source: Any, **given: Any) -> Any:
    """The data set, in tasks."""
    return open_data(source, build(DataSettings, given))


def inputs_of(split: Any, rows: list[int]) -> Tensor:
    """The inputs of these examples."""
    return next(iter(split.batches([torch.tensor(rows)]))).inputs[0]  # type: ignore[no-any-return]


def test_permuted_tasks_have_all_examples_in_another_order_of_pixels() -> None:
    plain, data = opened("digits"), opened("digits", tasks="permuted:3")
    assert data.tasks.count == 3
    for name, split in data.splits.items():
        base = plain.splits[name]
        assert len(split) == 3 * len(base)
        assert torch.equal(split.target, base.target.repeat(3))
        assert torch.equal(data.tasks.task_ids(split), torch.arange(3).repeat_interleave(len(base)))
        assert torch.equal(data.tasks.original(split), torch.arange(len(base)).repeat(3))
    train, n = data.splits["train"], len(plain.splits["train"])
    orders = train.orders
    assert torch.equal(orders[0], torch.arange(64))
    assert len({tuple(order.tolist()) for order in orders}) == 3
    assert all(torch.equal(order.sort().values, torch.arange(64)) for order in orders)
    once = inputs_of(plain.splits["train"], [4, 7])
    for t in range(3):
        found = inputs_of(train, [t * n + 4, t * n + 7])
        assert found.shape == once.shape
        assert torch.equal(found.flatten(1), once.flatten(1)[:, orders[t]])
    mixed = inputs_of(train, [4, n + 4, 2 * n + 4])  # a batch of several tasks
    assert torch.equal(mixed.flatten(1), once[0].flatten()[orders])
    assert torch.equal(data.splits["test"].orders, orders)
    assert torch.equal(opened("digits", tasks="permuted:3", split_seed=0).splits["val"].orders, orders)
    assert train.name(n + 4).endswith("task 2")
    assert train.image(n + 4).size == (8, 8)


def test_the_channels_of_an_image_are_permuted_alike(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(4):
            pixels = torch.randint(0, 256, (4, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(i))
            Image.fromarray(pixels.numpy()).save(tmp_path / name / f"{i}.png")
    split = opened(tmp_path, tasks="permuted:2", val=0, test=0).splits["train"]
    x = inputs_of(split, [0, 8])
    assert torch.equal(x[1].flatten(1), x[0].flatten(1)[:, split.orders[1]])


def test_the_columns_of_a_table_are_permuted() -> None:
    split = opened("moons", tasks="permuted:20").splits["train"]
    n = len(split) // 20
    x = inputs_of(split, [3, *(t * n + 3 for t in range(1, 20))])
    assert {tuple(row.tolist()) for row in x} == {tuple(x[0].tolist()), tuple(x[0].flip(0).tolist())}


def test_tasks_of_classes_have_so_many_each() -> None:
    data = opened("digits", tasks="classes:5")
    train = data.splits["train"]
    assert not isinstance(train, PermutedSplit)
    assert data.tasks.names == ("0 1 2 3 4", "5 6 7 8 9")
    assert torch.equal(data.tasks.task_ids(train), (train.target >= 5).long())
    first = data.tasks.up_to(train, 0)
    assert set(first.target.tolist()) == set(range(5))
    rows = (train.target < 5).nonzero()[:, 0]
    assert torch.equal(inputs_of(first, [2, 9]), inputs_of(train, rows[[2, 9]].tolist()))
    assert first.name(2) == train.name(int(rows[2]))
    assert data.tasks.up_to(train, 1) is train


TEXTS = "".join(f"{word} {'very ' * (i % 4)}good\t{word}\n" for i in range(30) for word in ("red", "blue", "green"))


def test_texts_in_tasks_are_batched_with_those_like_them(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("text\tcolour\n" + TEXTS)
    data = opened(tmp_path / "texts.tsv", text="text", target="colour", tasks="classes:1", test=0)
    part = data.tasks.up_to(data.splits["train"], 1)
    assert set(part.target.tolist()) == {0, 1}
    assert sorted(torch.cat(part.plan(8, None)).tolist()) == list(range(len(part)))


def test_a_task_without_an_example_to_learn_from_is_rejected() -> None:
    data = opened("digits")
    few = subset(data.splits["train"], (data.splits["train"].target < 4).nonzero()[:, 0])
    with pytest.raises(SettingError, match="tasks=classes:2 leaves no training example to 4 5, 6 7 and 8 9"):
        to_tasks(replace(data, splits={**data.splits, "train": few}), "classes:2", 0)


@pytest.mark.parametrize(
    ("source", "given", "said"),
    [
        ("digits", {"tasks": "two"}, "Invalid tasks=two: must be permuted:10"),
        ("digits", {"tasks": "classes:0"}, "does not divide them. Give classes:1, classes:2 or classes:5."),
        ("digits", {"tasks": "classes:3"}, "there are 10 classes, and it does not divide them"),
        ("digits", {"tasks": "classes:10"}, "there are 10 classes, and it leaves one task"),
        ("digits", {"tasks": "permuted:1"}, "tasks=permuted:1 is not a sequence"),
        ("digits", {"tasks": "permuted:2000"}, "is not a sequence"),
        ("digits", {"tasks": "permuted:3", "flip": True}, "augmentation"),
        ("karate", {"tasks": "classes:1"}, "this is graph data"),
        ("TEXTS", {"tasks": "permuted:3", "text": "text", "target": "colour"}, "this is text data"),
        ("NUMBERS", {"tasks": "permuted:3", "target": "y"}, "makes tasks of examples with classes"),
    ],
)
def test_what_cannot_be_is_rejected(source: str, given: dict[str, Any], said: str, tmp_path: Path) -> None:
    if source == "TEXTS":
        (tmp_path / "t.tsv").write_text("text\tcolour\n" + TEXTS)
        source = str(tmp_path / "t.tsv")
    if source == "NUMBERS":
        (tmp_path / "n.csv").write_text("x,y\n" + "".join(f"{i % 7},{i * 1.37}\n" for i in range(60)))
        source = str(tmp_path / "n.csv")
    with pytest.raises(SettingError) as rejection:
        opened(source, **given)
    assert said in str(rejection.value)
