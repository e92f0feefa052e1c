"""Tables by row groups of Parquet: what is fitted, encoded and seen equals what it is in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import cutaway
from cutaway.core.errors import DataError, SettingError
from cutaway.data.dataset_base import DataSet, Split
from cutaway.data.images.dataset import find_damaged
from cutaway.data.open_data import infer_kind, open_data
from cutaway.data.settings import DataSettings
from cutaway.data.tables import dataset, table_files
from cutaway.data.tables.column_types import Numeric
from cutaway.data.tables.delimited import Form
from cutaway.data.tables.row_groups import BlockOrder, RowGroupSplit, select_ranks
from cutaway.data.tables.table_files import locate_row_groups
from cutaway.training.batches import epoch_batches
from cutaway.training.config import TrainSettings
from cutaway.training.device import DeviceContext

ROWS, GROUP = 3000, 170


def frame(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    """A table of every type of column, with gaps, sorted by its target."""
    rng = np.random.default_rng(seed)
    kind = np.sort(rng.integers(0, 4, rows))
    x = rng.normal(size=rows) * 10.0 ** rng.integers(-3, 4, rows) + kind
    days = np.datetime64("2020-01-01") + rng.integers(0, 900, rows)
    return pl.DataFrame(
        {
            "x": pl.Series(np.where(rng.random(rows) < 0.1, np.nan, x)),
            "small": pl.Series(rng.normal(size=rows).astype(np.float32)),
            "count": pl.Series(rng.integers(-5, 20, rows) + 10 * kind, dtype=pl.Int32),
            "colour": pl.Series(np.array(["red", "green", "blue", None], object)[rng.integers(0, 4, rows)].tolist()),
            "many": pl.Series([f"v{v}" for v in rng.zipf(1.5, rows).clip(max=300)]),
            "flag": pl.Series(rng.random(rows) < 0.3),
            "day": pl.Series(days),
            "same": pl.Series(["a"] * rows),
            "kind": pl.Series([f"k{k}" for k in kind]),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One file of 18 row groups, the last of which is smaller."""
    frame().write_parquet(tmp_path / "table.parquet", row_group_size=GROUP)
    return tmp_path / "table.parquet"


def opened(path: Path, target: str = "kind", **settings: Any) -> DataSet:
    return open_data(path, DataSettings(target=target, **settings))


def inputs(split: Split) -> torch.Tensor:
    """All inputs, in the order of examples."""
    order = torch.arange(len(split)).split(97)
    return torch.cat([batch.inputs[0] for batch in split.batches(order)])


def test_the_footer_says_how_many_rows_stand_where(table: Path, tmp_path: Path) -> None:
    groups = locate_row_groups(table)
    assert groups.blocks == -(-ROWS // GROUP)
    assert np.diff(groups.first).tolist() == [GROUP] * (ROWS // GROUP) + [ROWS % GROUP]
    whole = pl.concat([part for _, part in groups.frames(list(groups.schema))])
    assert whole.equals(pl.read_parquet(table))
    wide = pl.DataFrame({f"c{k}": [k, k + 1] for k in range(40)})
    wide.write_parquet(tmp_path / "wide.parquet", row_group_size=1)
    assert locate_row_groups(tmp_path / "wide.parquet").first.tolist() == [0, 1, 2]


def test_a_large_row_group_is_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "MOST_ROWS", 1000)
    frame().write_parquet(tmp_path / "one.parquet", row_group_size=ROWS)
    groups = locate_row_groups(tmp_path / "one.parquet")
    assert np.diff(groups.first).tolist() == [1000] * 3
    assert groups.frame(2, ["x", "day"]).equals(pl.read_parquet(tmp_path / "one.parquet")[2000:, ["x", "day"]])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale": "quantile", "max_samples": 700},
        {"target": "x", "missing": "drop", "scale": "none"},
        {"group": "many", "ignore": ("small",), "types": ("count:category",), "split_seed": 3},
    ],
)
def test_what_is_fitted_is_what_is_fitted_in_memory(table: Path, settings: dict[str, Any]) -> None:
    held, read = opened(table, **settings), opened(table, **settings, memory=0)
    assert isinstance(read.splits["train"], RowGroupSplit)
    assert read.spec.columns == held.spec.columns  # type: ignore[union-attr]
    assert read.spec.target.classes == held.spec.target.classes
    assert read.split_hash == held.split_hash
    for ours, theirs in zip(read.preprocessing.encoders, held.preprocessing.encoders):  # type: ignore[attr-defined]
        if isinstance(theirs, Numeric):
            # Sums of at most 3 000 numbers in another order, each rounded to 2^-53 of its size.
            assert ours.mean == pytest.approx(theirs.mean, rel=1e-12, abs=1e-12)
            assert ours.scale == pytest.approx(theirs.scale, rel=1e-12)
            assert np.array(ours.curve) == pytest.approx(np.array(theirs.curve), rel=1e-12, abs=1e-12)
            ours = dataclasses.replace(ours, mean=theirs.mean, scale=theirs.scale, curve=theirs.curve)
        assert ours == theirs  # names, categories, medians, which cells are missing: exactly
    for name, split in held.splits.items():
        assert torch.equal(read.splits[name].target, split.target)  # type: ignore[arg-type]
        assert [read.splits[name].row(i) for i in (0, 5)] == [split.row(i) for i in (0, 5)]
        torch.testing.assert_close(inputs(read.splits[name]), inputs(split), rtol=1e-6, atol=1e-6)


def test_a_folder_of_files_is_one_table(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for k in range(3):
        frame()[1000 * k : 1000 * (k + 1)].write_parquet(folder / f"part-{k}.parquet", row_group_size=GROUP)
    assert infer_kind(folder, DataSettings()) == "table"
    whole = opened(table)
    for data in (opened(folder), opened(folder, memory=0)):
        assert data.split_hash == whole.split_hash
        assert torch.equal(inputs(data.splits["val"]), inputs(whole.splits["val"])) or data.name == "parts"
        torch.testing.assert_close(inputs(data.splits["val"]), inputs(whole.splits["val"]), rtol=1e-6, atol=1e-6)
    row = int(data.splits["test"].rows[-1])  # type: ignore[attr-defined]
    assert (
        data.splits["test"].name(len(data.splits["test"]) - 1) == f"row {row % 1000 + 1} of part-{row // 1000}.parquet"
    )
    assert torch.equal(whole.preprocessing.labelled(folder).inputs, whole.preprocessing.labelled(table).inputs)  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [None, 0])
@pytest.mark.parametrize("window", [1, 3, 18])
def test_every_row_is_seen_once_in_an_order_that_the_seed_says(
    table: Path, window: int, workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "_num_mixed_blocks", lambda *_: window)
    split = opened(table, memory=0, workers=workers).splits["train"]
    assert isinstance(split, RowGroupSplit)
    expected = inputs(split)
    orders = []
    for seed in (0, 0, 1):
        plan = split.plan(64, torch.Generator().manual_seed(seed))
        assert torch.cat([*plan]).sort().values.tolist() == list(range(len(split)))
        seen = torch.cat([batch.inputs[0] for batch in split.batches(plan)])
        assert torch.equal(seen, expected[torch.cat([*plan])])
        orders.append(torch.cat([*plan]))
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    assert torch.equal(torch.cat([*split.plan(64, None)]), torch.arange(len(split)))


def test_what_came_before_is_not_read(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_num_mixed_blocks", lambda *_: 2)
    data = opened(table, memory=0, val=0, test=0)
    split = data.splits["train"]
    plan = split.plan(50, torch.Generator().manual_seed(0))  # type: ignore[attr-defined]
    read: list[int] = []
    whole = table_files.RowGroups._read

    def counted(self: table_files.RowGroups, block: int, *rest: Any) -> pl.DataFrame:
        read.append(block)
        return whole(self, block, *rest)

    monkeypatch.setattr(table_files.RowGroups, "_read", counted)
    resumed = [batch.inputs[0] for batch in split.batches(plan[-6:])]
    assert len(set(read)) == len(read) <= 4  # the window that it stands in, and the one before where a batch has both
    monkeypatch.undo()
    assert torch.equal(torch.cat(resumed), inputs(split)[torch.cat([*plan[-6:]])])


def test_two_processes_read_what_one_reads(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_num_mixed_blocks", lambda *_: 3)
    split = opened(table, memory=0).splits["train"]
    plan = epoch_batches(split, TrainSettings(batch_size=50), epoch=1)
    places = [DeviceContext(torch.device("cpu"), torch.float32, None, False, rank, 2) for rank in (0, 1)]
    shares = [list(split.batches([place.shard_batch(index) for index in plan])) for place in places]
    for whole, first, second in zip(split.batches(plan), *shares):
        assert torch.equal(whole.inputs[0][::2], first.inputs[0])
        assert torch.equal(whole.inputs[0][1::2], second.inputs[0])


def test_a_last_row_by_itself_joins_the_batch_before_it(table: Path) -> None:
    split = opened(table, memory=0, val=0, test=0, max_samples=129).splits["train"]
    assert [len(batch) for batch in split.plan(64, torch.Generator().manual_seed(0))] == [64, 65]  # type: ignore[attr-defined]
    assert [len(batch) for batch in split.plan(64, None)] == [64, 64, 1]  # type: ignore[attr-defined]


def test_few_blocks_are_in_memory(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_num_mixed_blocks", lambda *_: 2)
    split = opened(table, memory=0, val=0, test=0).splits["train"]
    assert isinstance(split, RowGroupSplit)
    held: list[int] = []
    whole = split._batch

    def counted(known: Any, futures: Any, awaited: Any) -> Any:
        held.append(len(futures))
        return whole(known, futures, awaited)

    monkeypatch.setattr(split, "_batch", counted)
    plan = split.plan(32, torch.Generator().manual_seed(0))
    assert sum(len(batch.target) for batch in split.batches(plan)) == ROWS
    assert max(held) <= 2 * 2 + 2  # two windows, and the blocks of the batch that is added


SIZE = 50  # rows of a block


def spread(labels: torch.Tensor, orders: Callable[[int], torch.Tensor]) -> float:
    """The variance over batches of 60 of the share that each class has, of all classes, in orders by twelve seeds."""
    found = []
    for seed in range(12):
        seen = labels[orders(seed)]
        batches = seen[: len(seen) // 60 * 60].view(-1, 60)
        found.append(torch.nn.functional.one_hot(batches).double().mean(1))
    return float(torch.cat(found).var(0).sum())


@pytest.mark.parametrize(
    ("blocks", "window", "classes"), [(120, 2, 2), (120, 16, 2), (120, 10, 4), (121, 30, 4), (97, 40, 10), (12, 12, 3)]
)
def test_windows_mix_a_sorted_table_as_well_as_a_full_shuffle(blocks: int, window: int, classes: int) -> None:
    starts = np.arange(blocks) * SIZE
    labels = torch.arange(blocks * SIZE) * classes // (blocks * SIZE)

    def order(seed: int) -> torch.Tensor:
        found = BlockOrder(starts, starts + SIZE, window, torch.Generator().manual_seed(seed)).part(0, len(labels))
        assert found.sort().values.equal(torch.arange(len(labels)))
        return found

    full = spread(labels, lambda seed: torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)))
    # Of blocks drawn anywhere, `window` at a time, it is 1 + 60 / window, which is up to 31 here. What is left beside
    # 1 is of stretches with two classes, at most one for each class but the first.
    assert spread(labels, order) < (1.2 + 60 * (classes - 1) / window**2) * full
    assert (
        spread(labels, order) > 0.8 * (1 - 60 / (window * SIZE)) * full
    )  # a window is drawn from without putting back
    assert not order(0).equal(order(1))


@pytest.mark.parametrize("numbers", [0, 1, 7, 5000])
def test_order_statistics_are_exact(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutaway.data.tables.row_groups.HELD", 10)
    monkeypatch.setattr("cutaway.data.tables.row_groups.COUNTERS", 1 << 12)
    rng = np.random.default_rng(numbers)
    values = np.concatenate([rng.normal(size=numbers), rng.integers(-3, 3, numbers), [0.0, -0.0, 1e300, -5e-324]])
    ranks = np.unique(rng.integers(0, len(values), 40))
    found = select_ranks(lambda: np.array_split(values, 7), ranks)
    assert np.array_equal(found, np.sort(values)[ranks])


@pytest.mark.parametrize("missing", ["error", "drop", "fill"])
def test_cells_that_cannot_be_read(tmp_path: Path, missing: str) -> None:
    bad = frame().with_columns(pl.col("small").cast(pl.String))
    bad = bad.with_columns(
        pl.when(pl.int_range(pl.len()) % 800 == 5).then(pl.lit("oops")).otherwise("small").alias("small")
    )
    bad.write_parquet(tmp_path / "bad.parquet", row_group_size=GROUP)
    if missing == "error":
        with pytest.raises(DataError, match=r"4 cells of .* row 6 of bad\.parquet, column small: oops|'oops' is not"):
            opened(tmp_path / "bad.parquet", memory=0)
        return
    held, read = (opened(tmp_path / "bad.parquet", memory=m, missing=missing) for m in (512, 0))
    assert read.split_hash == held.split_hash
    torch.testing.assert_close(inputs(read.splits["train"]), inputs(held.splits["train"]), rtol=1e-6, atol=1e-6)
    assert any(f"missing={missing}" in note and "4" in note for note in read.notes)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def another_column(path: Path) -> None:
    frame(50).rename({"x": "z"}).write_parquet(path)


def another_type(path: Path) -> None:
    frame(50).with_columns(pl.col("count").cast(pl.Float64)).write_parquet(path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (truncated, r"b\.parquet: it is not a whole Parquet file: it does not end as such a file does"),
        (lambda path: path.write_bytes(b""), "it has 0 bytes"),
        (another_column, "a.parquet has a column 'x', and b.parquet has none|b.parquet has a column 'z'"),
        (another_type, "column 'count' is Int32 in a.parquet and Float64 in b.parquet"),
    ],
)
def test_files_that_are_no_table_are_named(tmp_path: Path, spoil: Callable[[Path], object], said: str) -> None:
    for name in ("a", "b"):
        frame(100).write_parquet(tmp_path / f"{name}.parquet")
    spoil(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=said):
        opened(tmp_path)


def test_rows_that_are_damaged_are_named_when_they_are_read(table: Path) -> None:
    data = opened(table, memory=0)
    content = bytearray(table.read_bytes())
    content[2000:6000] = bytes(4000)
    table.write_bytes(content)
    with pytest.raises(DataError, match=r"table\.parquet: it is not a whole Parquet file"):
        inputs(data.splits["train"])
    assert all("table.parquet" in problem.where for problem in find_damaged(data.splits["train"]))
    assert find_damaged(data.splits["train"])


def in_memory(path: Path) -> int:
    """The bytes of the table that is read in memory: 16 of each cell, and the text beside them."""
    held = table_files.read_table_or_folder(path, Form()).frame
    return held.height * held.width * 16 + held.estimated_size()


@pytest.mark.parametrize("group", [200, 3000])
@pytest.mark.parametrize(
    "kind", ["repeated", "different", "grows", "category", "words", "number", "small", "long", "flag", "time", "gaps"]
)
def test_the_estimate_of_memory_is_no_less_than_what_a_table_takes(tmp_path: Path, kind: str, group: int) -> None:
    rng = np.random.default_rng(0)
    n = ROWS
    columns: dict[str, pl.Series] = {
        "repeated": pl.Series([f"w{k} " * 200 for k in rng.integers(0, 10, n)]),  # in a dictionary of ten
        "different": pl.Series([f"{k:0200d}" for k in range(n)]),
        "grows": pl.Series([f"{k:0{1 + k // 10}d}" for k in range(n)]),  # the first rows are the shortest
        "category": pl.Series([f"w{k} " * 50 for k in rng.integers(0, 10, n)], dtype=pl.Categorical),
        "words": pl.Series([f"w{k}" for k in rng.integers(0, 10, n)]),
        "number": pl.Series(rng.normal(size=n) * 1e-300),
        "small": pl.Series(rng.integers(0, 100, n), dtype=pl.Int16),
        "long": pl.Series(rng.integers(-(2**63), 2**63 - 1, n)),
        "flag": pl.Series(rng.random(n) < 0.3),
        "time": pl.Series(np.datetime64("2020-01-01T00:00:00.123456") + rng.integers(0, 900, n)),
        "gaps": pl.Series(["text " * 30 if k % 2 else None for k in range(n)]),
    }
    pl.DataFrame({"x": columns[kind], "y": columns[kind]}).write_parquet(tmp_path / "t.parquet", row_group_size=group)
    groups = locate_row_groups(tmp_path / "t.parquet")
    real = in_memory(tmp_path / "t.parquet")
    assert real <= groups.bytes_in_memory <= 2 * real
    assert groups.are_larger_than((real - 1) >> 20)
    assert not groups.are_larger_than(1 + (2 * real >> 20))


def test_the_estimate_of_memory_counts_lists_and_all_files(tmp_path: Path) -> None:
    lists = pl.DataFrame({"x": [[*range(k, k + 100)] for k in range(500)], "y": [["a" * 50] * 4] * 500})
    for name in "ab":
        lists.write_parquet(tmp_path / f"{name}.parquet", row_group_size=90)
    real = 2 * lists.estimated_size()
    assert real <= locate_row_groups(tmp_path).bytes_in_memory <= 3 * real


def test_a_table_of_long_texts_is_read_by_row_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wide = pl.DataFrame({
        "note": [f"w{k} " * 400 for k in rng.integers(0, 10, 2000)],  # 2.4 MB, and 4 KB in the file
        "x": rng.normal(size=2000),
        "kind": [f"k{k}" for k in rng.integers(0, 3, 2000)],
    })  # fmt: skip
    wide.write_parquet(tmp_path / "t.parquet", row_group_size=400)
    assert any("more than memory=1 holds" in note for note in opened(tmp_path / "t.parquet", memory=1).notes)
    assert not any("more than memory" in note for note in opened(tmp_path / "t.parquet", memory=4).notes)


def test_settings_of_memory_are_for_parquet(tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "table.csv")
    with pytest.raises(SettingError, match="memory=0 is for Parquet"):
        opened(tmp_path / "table.csv", memory=0)


def test_a_run_on_row_groups_learns_and_predicts_the_whole_table(table: Path, tmp_path: Path) -> None:
    run = cutaway.train("mlp", table, out=tmp_path / "run", target="kind", memory=0, epochs=2, batch_size=64)
    assert run.evaluate(table)["accuracy"].value > 0.4  # of four classes
    assert len(run.predict([table])) == ROWS


def test_words_for_missing_cells_hold_by_row_groups_too(tmp_path: Path) -> None:
    words = {"colour": pl.col("colour").fill_null("NA"), "kind": pl.col("kind").replace({"k1": "None", "k2": ""})}
    frame().with_columns(**words).write_parquet(tmp_path / "table.parquet", row_group_size=GROUP)
    for more in ({}, {"missing_values": ("k9",)}, {"missing_values": ("none",)}):
        settings: dict[str, Any] = {"missing": "drop", **more}
        held, read = (opened(tmp_path / "table.parquet", **settings, memory=memory) for memory in (512, 0))
        assert isinstance(read.splits["train"], RowGroupSplit)
        assert read.spec.target.classes == held.spec.target.classes
        assert read.split_hash == held.split_hash
        assert ("None" in read.spec.target.classes) == (more != {"missing_values": ("none",)})
        assert read.spec.columns == held.spec.columns  # type: ignore[union-attr]
        assert ("colour=NA" in read.spec.columns) == bool(more)  # type: ignore[union-attr]
        assert torch.equal(inputs(read.splits["train"]), inputs(held.splits["train"]))
        assert read.preprocessing.to_json()["read"] == held.preprocessing.to_json()["read"]


def test_units_are_taken_from_a_folder_of_files_as_from_one(tmp_path: Path) -> None:
    price = pl.Series("price", [f"${k % 7},00{k % 3}.50" for k in range(90)])
    whole = frame(90).with_columns(price)
    whole.write_parquet(tmp_path / "one.parquet")
    (tmp_path / "many").mkdir()
    whole[:40].write_parquet(tmp_path / "many" / "a.parquet")
    whole[40:].write_parquet(tmp_path / "many" / "b.parquet")
    one, many = (opened(tmp_path / name, missing="fill") for name in ("one.parquet", "many"))
    assert many.preprocessing == one.preprocessing
    assert many.preprocessing.to_json()["read"]["units"] == {"price": "$"}
    assert sum("price ($)" in note for note in many.notes) == 1
    assert torch.equal(inputs(many.splits["test"]), inputs(one.splits["test"]))
    assert many.splits["train"].name(3).endswith(".parquet")


def test_a_target_of_one_value_is_said_before_the_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_whole(*words: Any) -> Any:
        raise AssertionError("the table is read as a whole")

    monkeypatch.setattr(dataset, "read_table", read_whole)
    monkeypatch.setattr(table_files, "MOST_ROWS", 100)
    kinds: list[str | None] = [None, *["b"] * 697, "", None]
    pl.DataFrame({"x": range(700), "kind": kinds}).write_parquet(tmp_path / "one.parquet", row_group_size=170)
    with pytest.raises(DataError, match="The target 'kind' is 'b' in all 697 rows: at least two"):
        open_data(tmp_path / "one.parquet", DataSettings(target="kind"))
    pl.DataFrame({"x": range(700), "kind": [*kinds[:-1], "c"]}).write_parquet(
        tmp_path / "two.parquet", row_group_size=170
    )
    with pytest.raises(AssertionError, match="as a whole"):
        open_data(tmp_path / "two.parquet", DataSettings(target="kind"))
