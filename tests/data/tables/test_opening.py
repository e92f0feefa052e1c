"""Tables become data sets: nothing that is fitted comes from outside the training rows, and nothing happens unsaid."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import CutawayError, DataError, SettingError
from cutaway.core.spec import Classes, TableSpec, Value
from cutaway.data.build import DataSource
from cutaway.data.dataset_base import DataSet
from cutaway.data.in_memory.source import to_source
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.tables.dataset import open_table, table_dataset
from cutaway.data.tables.table_files import frame_table
from cutaway.data.tables.transforms import TablePreprocessing, TableSplit


def written(tmp_path: Path, text: str, name: str = "houses.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def houses(rows: int = 60, **columns: list[str]) -> str:
    """A CSV with a number, a category and a class; `columns` replace or add some."""
    rng = np.random.default_rng(0)
    table = {
        "size": rng.normal(90, 20, rows).round(2).astype(str).tolist(),
        "city": rng.choice(["Bonn", "Köln"], rows).tolist(),
        "sold": np.resize(["no", "later", "now"], rows).tolist(),
    } | columns
    return "\n".join([",".join(table), *(",".join(row) for row in zip(*table.values()))]) + "\n"


def opened(tmp_path: Path, text: str, **settings: Any) -> DataSet:
    return open_table(written(tmp_path, text), DataSettings(**({"target": "sold"} | settings)))


def rejection(tmp_path: Path, text: str, error: type[CutawayError] = DataError, **settings: Any) -> CutawayError:
    with pytest.raises(error) as rejected:
        opened(tmp_path, text, **settings)
    return rejected.value


def split(data: DataSet, name: str = "train") -> TableSplit:
    found = data.splits[name]
    assert isinstance(found, TableSplit)
    return found


def rows_of(data: DataSet) -> dict[str, list[int]]:
    """The rows of each split, counted from 0, from the names that a person sees."""
    return {
        name: [int(data.splits[name].name(i).split()[1]) - 2 for i in range(len(data.splits[name]))]
        for name in data.splits
    }


def all_rows(data: DataSet) -> list[int]:
    """The rows of all splits."""
    return [row for rows in rows_of(data).values() for row in rows]


def spec_of(data: DataSet) -> TableSpec:
    assert isinstance(data.spec, TableSpec)
    return data.spec


def test_a_table_in_three_parts(tmp_path: Path) -> None:
    text = houses()
    data = opened(tmp_path, text)
    assert data.spec == TableSpec(
        ("size", "city=Bonn", "city=Köln", "city=(unknown)"), Classes(("later", "no", "now"), "sold")
    )
    assert {name: len(p) for name, p in data.splits.items()} == {"train": 42, "val": 9, "test": 9}
    assert sorted(all_rows(data)) == list(range(60))
    assert (data.name, data.fingerprint) == ("houses", hashlib.sha256(text.encode()).hexdigest())
    lines = text.splitlines()
    for rows in data.splits.values():
        assert rows.target is not None
        for i in (0, len(rows) - 1):
            given_row = dict(zip(lines[0].split(","), lines[int(rows.name(i).split()[1]) - 1].split(",")))
            assert rows.row(i) == given_row
            assert data.spec.target.names[int(rows.target[i])] == given_row["sold"]  # type: ignore[union-attr]
    (batch,) = data.splits["train"].batches([torch.tensor([3, 1])])
    assert torch.equal(batch.inputs[0], split(data).inputs[[3, 1]])
    assert split(data).inputs[:, 0].mean().item() == pytest.approx(0, abs=1e-6)
    assert split(data).inputs[:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-5)


cells_outside = st.sampled_from(["-1e30", "0", "NA", "", "junk", "17", "1,2", "Atlantis", "2099-01-01", "yes", "inf"])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data(), scale=st.sampled_from(["standard", "quantile", "none"]))
def test_nothing_fitted_depends_on_rows_outside_training(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, scale: str
) -> None:
    """Whatever stands in the other rows, the preprocessing, the split and the training tensors are the same."""
    rng = np.random.default_rng(1)
    count = 60
    columns = {
        "size": rng.normal(90, 20, count).round(2).astype(str),
        "city": rng.choice(["Bonn", "Köln", "Ulm", "NA"], count).astype("<U40"),
        "day": (np.datetime64("2020-01-01") + rng.integers(0, 99, count)).astype(str).astype("<U40"),
        "old": rng.choice(["yes", "no"], count).astype("<U40"),
        "key": np.arange(count).astype(str).astype("<U40"),
        "same": np.full(count, "x", "<U40"),
        "price": rng.normal(300, 50, count).round(2).astype(str).astype("<U40"),
    }
    folder = tmp_path_factory.mktemp("leak")
    choice = {"target": "price", "scale": scale, "missing": "fill"}
    before = opened(folder, pl.DataFrame({k: v.tolist() for k, v in columns.items()}).write_csv(), **choice)
    others = np.array(rows_of(before)["val"] + rows_of(before)["test"])
    for name, column in columns.items():
        strange = st.floats(-1e9, 1e9).map(str) if name == "price" else cells_outside
        column[others] = data.draw(st.lists(strange, min_size=len(others), max_size=len(others)), label=name)
    after = opened(folder, pl.DataFrame({k: v.tolist() for k, v in columns.items()}).write_csv(), **choice)
    fitted = [{k: v for k, v in data.preprocessing.to_json().items() if k != "read"} for data in (before, after)]
    assert fitted[0] == fitted[1]  # how the file is written is read off all of it, and is not fitted
    assert after.split_hash == before.split_hash
    assert torch.equal(split(after).inputs, split(before).inputs)
    assert torch.equal(split(after).target, split(before).target)  # type: ignore[arg-type]


def test_training_rows_do_matter(tmp_path: Path) -> None:
    before = opened(tmp_path, houses())
    row = rows_of(before)["train"][0]
    sizes = [line.split(",")[0] for line in houses().splitlines()[1:]]
    sizes[row] = "1000"
    assert opened(tmp_path, houses(size=sizes)).preprocessing.to_json() != before.preprocessing.to_json()


def test_columns_are_described(tmp_path: Path) -> None:
    text = houses(
        key=[f"k{i}" for i in range(60)],
        group=[str(i % 12) for i in range(60)],
        note=["skip me"] * 60,
        age=["NA", *(str(i % 7) for i in range(59))],
        empty=[""] * 60,
        same=["1"] * 60,
    )
    data = opened(tmp_path, text, group="group", ignore=("note",))
    lines = {line["name"]: line for line in data.columns}
    assert list(lines) == text.splitlines()[0].split(",")
    assert {name: line["role"] for name, line in lines.items()} == {
        "size": "input",
        "city": "input",
        "sold": "target",
        "key": "left out: every cell differs, like a key",
        "group": "group",
        "note": "left out: ignore says so",
        "age": "input",
        "empty": "left out: every cell is missing",
        "same": "left out: it is the same in every row",
    }
    assert lines["age"] == {
        "name": "age",
        "type": "number",
        "role": "input",
        "missing": "1 (1.7%)",
        "example": "0 … 6",
    }
    assert lines["city"]["example"] == "Köln, Bonn" or lines["city"]["example"] == "Bonn, Köln"
    said = " ".join(data.notes)
    assert "Column key is left out: every cell differs, like a key; types=key:category (or number) keeps it." in said
    assert "Column empty is left out: every cell is missing." in said
    assert "Column same is left out: it is the same in every row." in said
    assert "Column group keeps rows together in the split and is not an input." in said


def test_types_can_be_overridden(tmp_path: Path) -> None:
    text = houses(zip=[str(50000 + i % 4) for i in range(60)], id=[str(i) for i in range(60)])
    data = opened(tmp_path, text, types=("zip:category", "id:number"))
    assert {"zip=50001", "id"} <= set(spec_of(data).columns)
    regression = opened(tmp_path, text, target="size")
    assert isinstance(regression.spec.target, Value)
    assert split(regression).target.mean().item() == pytest.approx(0, abs=1e-6)  # type: ignore[union-attr]
    few = opened(tmp_path, text, target="zip", types=("zip:number",))
    assert isinstance(few.spec.target, Value)


BAD = {k: "n/q" if k == 7 else "1,23" if k == 9 else str(k / 10) for k in range(60)}


def test_unreadable_cells_are_rejected_dropped_or_filled_as_asked(tmp_path: Path) -> None:
    text = houses(rooms=[f'"{cell}"' for cell in BAD.values()])
    rejected = rejection(tmp_path, text)
    assert isinstance(rejected, DataError)
    assert [str(p) for p in rejected.problems] == [
        "houses.csv, line 9, column rooms: 'n/q' is not a number",
        "houses.csv, line 11, column rooms: '1,23' has a decimal comma: "
        "write 1.23, or say decimal=, where all have one",
    ]
    for way_out in ("missing=fill", "missing=drop", "types=COLUMN:category", "ignore=COLUMN"):
        assert way_out in str(rejected)
    dropped = opened(tmp_path, text, missing="drop")
    assert not {7, 9} & set(all_rows(dropped))
    assert sum(len(p) for p in dropped.splits.values()) == 58
    assert any("missing=drop left out 2 rows" in note and "'n/q'" in note for note in dropped.notes)
    filled = opened(tmp_path, text, missing="fill")
    assert sum(len(p) for p in filled.splits.values()) == 60
    assert any("missing=fill counts 2 unreadable cells" in note for note in filled.notes)
    ignored = opened(tmp_path, text, ignore=("rooms",))
    assert "rooms" not in spec_of(ignored).columns


def test_decimal_commas_are_read_as_such_and_kept_for_new_tables(tmp_path: Path) -> None:
    rooms = [f"{i},5" for i in range(60)]
    european = houses(rooms=[f"{i}.5" for i in range(60)]).replace(",", ";").replace(".", ",")
    data = opened(tmp_path, european)
    assert any("have a decimal comma in column" in note and "decimal=. reads" in note for note in data.notes)
    usual = opened(tmp_path, houses(rooms=[f"{i}.5" for i in range(60)]))
    assert torch.equal(split(data).inputs, split(usual).inputs)
    again = TablePreprocessing.from_json(json.loads(json.dumps(data.preprocessing.to_json())))
    header, row = european.splitlines()[:2]
    new = written(tmp_path, f"{header}\n{row}\n")
    assert torch.equal(again.examples([new]).inputs, data.preprocessing.examples([new]).inputs)
    text = houses(rooms=[f'"{room}"' for room in rooms])
    assert "rooms" in spec_of(opened(tmp_path, text)).columns
    assert "decimal comma: write 0.5" in str(rejection(tmp_path, text, decimal="."))
    filled = opened(tmp_path, text, missing="fill", decimal=".")
    assert any("Column rooms is left out: no training cell can be read." in note for note in filled.notes)


def test_missing_targets_are_rejected_or_dropped(tmp_path: Path) -> None:
    text = houses(sold=["", *np.resize(["no", "now"], 59).tolist()])
    assert "houses.csv, line 2, column sold: the target is missing" in str(rejection(tmp_path, text, missing="fill"))
    assert 0 not in all_rows(opened(tmp_path, text, missing="drop"))
    with_text = houses(sold=["oops", *(str(i) for i in range(59))])
    assert "line 2, column sold: 'oops' is not a number" in str(rejection(tmp_path, with_text))


def test_notes_on_missing_and_unseen_cells(tmp_path: Path) -> None:
    rows = rows_of(opened(tmp_path, houses()))
    cities = np.resize(np.array(["Bonn", "Köln"], "<U9"), 60)
    cities[rows["val"][0]] = "Atlantis"
    ages = np.resize(np.array([str(i) for i in range(9)], "<U9"), 60)
    ages[rows["test"][:2]] = "NA"
    data = opened(tmp_path, houses(city=cities.tolist(), age=ages.tolist()))
    said = " ".join(data.notes)
    assert (
        "Column city: cells without a category known from training count as unknown (1 cell of the val split)." in said
    )
    assert "Column age: missing cells (2 in test) count as the training median" in said
    assert "training had none to learn from" in said
    assert "city=Atlantis" not in spec_of(data).columns
    unknown = spec_of(data).columns.index("city=(unknown)")
    assert split(data, "val").inputs[:, unknown].sum() == 1


def test_notes_on_capped_categories_padded_cells_and_more_inputs_than_rows(tmp_path: Path) -> None:
    streets = [f"street {i % 150}" for i in range(600)]
    many = opened(tmp_path, houses(600, street=streets))
    rarer = len({streets[row] for row in rows_of(many)["train"]}) - 100
    told = f"Column street: the 100 most frequent values have an input each, {rarer} rarer ones count as unknown."
    assert told in many.notes
    padded = opened(tmp_path, houses(city=np.resize([" Bonn", "Köln", "Köln "], 60).tolist()))
    assert any("Spaces around cells do not count (columns city)" in note for note in padded.notes)
    assert "city=Köln" in spec_of(padded).columns
    wide = opened(tmp_path, houses(**{f"gene{i}": [str((k * i) % 11) for k in range(60)] for i in range(1, 80)}))
    assert any("more inputs" in note and "training rows (42)" in note for note in wide.notes)


def test_straddling_duplicates_are_told_with_their_lines(tmp_path: Path) -> None:
    lines = houses().splitlines()
    rows = rows_of(opened(tmp_path, houses()))
    lines[rows["test"][0] + 1] = lines[rows["train"][0] + 1]  # one line is copied to where the test split has one
    lines[rows["val"][0] + 1] = lines[rows["val"][1] + 1]  # and one within the validation split
    splits = {name: np.array(r) for name, r in rows.items()}
    frame = pl.read_csv("\n".join(lines).encode())
    data = table_dataset(frame_table(frame, "n"), DataSource("n", "n", "0"), DataSettings(target="sold"), given=splits)
    (note,) = (note for note in data.notes if "duplicates across splits" in note)
    assert "1 of 9 rows in test" in note
    assert "in val" not in note
    assert f"row {rows['test'][0] + 1} of n (test) = row {rows['train'][0] + 1} of n (train)" in note


def test_the_seed_and_the_group_rule_the_split(tmp_path: Path) -> None:
    text = houses(owner=[f"o{i % 20}" for i in range(60)])
    first, again, other = (opened(tmp_path, text, split_seed=seed) for seed in (0, 0, 1))
    assert first.split_hash == again.split_hash != other.split_hash
    grouped = opened(tmp_path, text, group="owner")
    owners = [{row["owner"] for i in range(len(p)) if (row := p.row(i))} for p in grouped.splits.values()]
    assert sum(map(len, owners)) == 20
    assert not any("owner" in column for column in spec_of(grouped).columns)


def test_a_limit_draws_training_rows_only(tmp_path: Path) -> None:
    whole, limited = opened(tmp_path, houses()), opened(tmp_path, houses(), max_samples=12)
    assert {name: len(p) for name, p in limited.splits.items()} == {"train": 12, "val": 9, "test": 9}
    assert rows_of(limited)["test"] == rows_of(whole)["test"]
    assert set(rows_of(limited)["train"]) < set(rows_of(whole)["train"])
    assert np.bincount(split(limited).target.numpy()).tolist() == [4, 4, 4]  # type: ignore[union-attr]
    assert split(limited).inputs[:, 0].mean().item() == pytest.approx(0, abs=1e-6)
    assert opened(tmp_path, houses(), max_samples=1000).split_hash == whole.split_hash
    assert "larger max_samples" in str(rejection(tmp_path, houses(), max_samples=2))


@pytest.mark.parametrize(
    ("rows", "settings", "error", "words"),
    [
        (1, {}, DataError, "1 usable row"),
        (2, {}, DataError, "2 usable rows"),
        (5, {}, DataError, "fewer than 3 examples"),
        (60, {"target": "size", "val": 0.001}, DataError, "The val split of houses.csv would be empty"),
        (60, {"target": "size", "test": 0.001}, DataError, "The test split of houses.csv would be empty"),
        (60, {"val": 0.6, "test": 0.4}, SettingError, "val=0.6 and test=0.4"),
        (60, {"group": "city"}, DataError, "'city' has 2 different values"),
        (60, {"target": None}, SettingError, "target=COLUMN"),
    ],
)
def test_what_cannot_be_split_is_rejected(
    tmp_path: Path, rows: int, settings: dict[str, Any], error: type[CutawayError], words: str
) -> None:
    assert words in str(rejection(tmp_path, houses(rows), error, **settings))


def test_a_table_of_keys_alone_is_rejected(tmp_path: Path) -> None:
    text = "id,sold\n" + "".join(f"{i},{i % 2}\n" for i in range(60))
    message = str(rejection(tmp_path, text))
    assert "No column is left to predict 'sold' from: id (every cell differs, like a key)" in message


def test_fixed_parts_may_overlap() -> None:
    """XOR: its four rows are training, validation and test split alike."""
    frame = pl.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "xor": [0, 1, 1, 0]})
    rows = np.arange(4)
    data = table_dataset(
        frame_table(frame, "xor"),
        DataSource("xor", "xor", "0", ["said by the set"]),
        DataSettings(target="xor"),
        given={"train": rows, "val": rows, "test": rows},
    )
    assert data.spec == TableSpec(("a", "b"), Classes(("0", "1"), "xor"))
    assert split(data, "test").inputs.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    assert data.notes == ["said by the set"]
    assert data.splits["val"].name(2) == "row 3 of xor"


def test_numeric_targets_are_learned_in_units_of_their_deviation(tmp_path: Path) -> None:
    data = opened(tmp_path, houses(), target="size")
    target = data.spec.target
    assert isinstance(target, Value)
    first = split(data).row(0)
    assert split(data).target[0].item() * target.scale + target.mean == pytest.approx(float(first["size"]), rel=1e-5)  # type: ignore[index]


def test_mixup_is_the_one_augmentation_of_tables(tmp_path: Path) -> None:
    assert opened(tmp_path, houses()).augment is None
    assert opened(tmp_path, houses(), mixup=0.2).augment is not None


def test_codes_keep_their_zeros_in_training_and_in_new_tables(tmp_path: Path) -> None:
    codes = np.resize(["02139", "00501", "10001", "02139"], 60).tolist()
    data = opened(tmp_path, houses(zip=codes))
    assert [c["type"] for c in data.columns if c["name"] == "zip"] == ["category"]
    assert sum("types=zip:number" in note for note in data.notes) == 1
    new = written(tmp_path, "size,city,zip\n80,Bonn,02139\n80,Bonn,2139\n80,Bonn,00501\n", "new.csv")
    split = data.preprocessing.examples([str(new)])
    columns = [k for k, name in enumerate(spec_of(data).columns) if name.startswith("zip=")]
    assert [spec_of(data).columns[columns[int(row[columns].argmax())]] for row in split.inputs] == [
        "zip=02139", "zip=(unknown)", "zip=00501",
    ]  # fmt: skip
    assert any("zip" in note and "1 cell of new.csv" in note for note in split.notes)
    as_numbers = opened(tmp_path, houses(zip=codes), types=("zip:number",))
    assert "zip" in spec_of(as_numbers).columns


def test_a_target_of_codes_is_of_classes(tmp_path: Path) -> None:
    codes = [f"{k % 25:03}" for k in range(250)]
    assert len(opened(tmp_path, houses(250, sold=codes)).spec.target.classes) == 25
    assert isinstance(opened(tmp_path, houses(250, sold=[str(k % 25) for k in range(250)])).spec.target, Value)


COUNTRIES = np.resize(["NA", "ZA", "BW", "NA", "AO", ""], 60).tolist()


def test_keys_that_begin_with_zeros_are_told_once(tmp_path: Path) -> None:
    data = opened(tmp_path, houses(key=[f"{k:04}" for k in range(60)]))
    (note,) = (note for note in data.notes if "Column key" in note)
    assert note.startswith("Column key is left out: every cell differs, like a key")


def test_cells_of_several_lines_are_shown_in_one(tmp_path: Path) -> None:
    data = opened(
        tmp_path, houses(remark=np.resize(['"two\nlines"', "one line", '"two\r\nlines,  more"'], 60).tolist())
    )
    (shown,) = (column["example"] for column in data.columns if column["name"] == "remark")
    assert shown == "two lines, one line, two lines, more"


def test_a_word_for_missing_cells_is_told_and_can_be_a_value(tmp_path: Path) -> None:
    data = opened(tmp_path, houses(country=COUNTRIES))
    assert [note for note in data.notes if "country:" in note] == [
        "Column country: NA counts as missing (20 cells). To read it as a value, set missing_values= to the full "
        "list of words that mean missing."
    ]
    assert not any("=NA" in name for name in spec_of(data).columns)
    kept = opened(tmp_path, houses(country=COUNTRIES), missing_values=("none", "-"))
    assert not [note for note in kept.notes if "country:" in note]
    assert "country=NA" in spec_of(kept).columns
    assert [c["missing"] for c in kept.columns if c["name"] == "country"] == ["10 (16.7%)"]


def test_the_words_for_missing_cells_are_saved_and_hold_for_new_tables(tmp_path: Path) -> None:
    kept = opened(tmp_path, houses(country=COUNTRIES), missing_values=("n.a.",))
    saved = json.loads(json.dumps(kept.preprocessing.to_json()))
    preprocessing = TablePreprocessing.from_json(saved)
    assert preprocessing == kept.preprocessing
    at = list(spec_of(kept).columns).index("country=NA")
    gone = list(spec_of(kept).columns).index("country=(missing)")
    rows = [{"size": "80", "city": "Bonn", "country": c} for c in ("NA", "N.A.", "ZA")]
    pl.DataFrame(rows).write_parquet(tmp_path / "new.parquet")
    pl.DataFrame(rows).write_csv(tmp_path / "new.csv")
    for new in (rows, pl.DataFrame(rows), str(tmp_path / "new.parquet"), str(tmp_path / "new.csv")):
        inputs = preprocessing.examples(new).inputs
        assert inputs[:, at].tolist() == [1, 0, 0]
        assert inputs[:, gone].tolist() == [0, 1, 0]
    older = {key: value for key, value in saved.items() if key != "read"}
    assert TablePreprocessing.from_json(older).written.missing_values == ("auto",)


def test_thousands_separators_are_told_with_the_setting_that_reads_them_otherwise(tmp_path: Path) -> None:
    data = opened(tmp_path, houses(price=np.resize(['"1,234.5"', '"2,500"', "800"], 60).tolist()))
    assert [note for note in data.notes if "thousands" in note] == [
        "Numbers have thousands separators in column price: 1,234.5 is read as 1234.5; decimal=, reads commas as "
        "decimal signs."
    ]


def test_auto_keeps_the_default_words_for_missing_cells_beside_others(tmp_path: Path) -> None:
    rooms = np.resize(["3", "n/a", "-999", "4.5", "-999.0", "?"], 60).tolist()
    settings = DataSettings(target="sold", missing_values=("auto", "-999"))
    path = written(tmp_path, houses(rooms=rooms))
    frame = pl.read_csv(path, null_values=["n/a", "?"], infer_schema_length=None)
    assert frame["rooms"].dtype == pl.Float64
    frame.write_parquet(tmp_path / "houses.parquet")
    streamed = replace(settings, memory=0)
    for data in (
        open_table(path, settings),
        open_table(tmp_path / "houses.parquet", settings),
        open_table(tmp_path / "houses.parquet", streamed),
        open_data(to_source(frame)[0], settings),
    ):
        assert [c["missing"] for c in data.columns if c["name"] == "rooms"] == ["40 (66.7%)"]
        (rooms_of,) = (e for e in data.preprocessing.encoders if e.name == "rooms")  # type: ignore[attr-defined]
        assert rooms_of.missing
        assert 3 <= rooms_of.fill <= 4.5
        again = type(data.preprocessing).from_json(json.loads(json.dumps(data.preprocessing.to_json())))
        row = {"size": "80", "city": "Bonn", "rooms": "-999"}
        at = again.spec.columns.index("rooms missing")
        assert again.examples([row, {**row, "rooms": "NA"}, {**row, "rooms": "3"}]).inputs[:, at].tolist() == [1, 1, 0]


def test_a_number_for_missing_targets_is_taken_from_columns_of_numbers(tmp_path: Path) -> None:
    prices = np.resize([100.5, -999.0, 200.25, 300.0], 200) + np.resize(np.r_[0, 0, 1, 2, 3, 4, 5, 6], 200)
    prices[1::4] = -999
    frame = pl.DataFrame({"size": np.arange(200) % 37 + 0.5, "price": prices})
    frame.write_parquet(tmp_path / "t.parquet")
    for memory in (512, 0):
        settings = DataSettings(target="price", missing_values=("auto", "-999"), missing="drop", memory=memory)
        data = open_table(tmp_path / "t.parquet", settings)
        assert sum(map(len, data.splits.values())) == 150


@pytest.mark.parametrize("word", ["None", "NA", "none", "null"])
def test_a_class_may_be_called_as_missing_cells_are(tmp_path: Path, word: str) -> None:
    sold = np.resize(["Mild", word, "Strong", word, ""], 60).tolist()
    data = opened(tmp_path, houses(sold=sold), missing="drop")
    assert set(data.spec.target.classes) == {"Mild", word, "Strong"}
    (told,) = (note for note in data.notes if "Read as a class" in note)
    assert f"{word!r} (24 rows)" in told
    assert f"missing_values=auto,{word.lower()}" in told
    new = written(tmp_path, f"size,city,sold\n80,Bonn,{word}\n70,Bonn,Mild\n", "new.csv")
    target = data.preprocessing.labelled(str(new)).target
    assert [data.spec.target.classes[int(k)] for k in target] == [word, "Mild"]  # type: ignore[union-attr]
    alone = written(tmp_path, f"size,city,sold\n80,Bonn,{word}\n", "alone.csv")
    assert data.preprocessing.labelled(str(alone)).target is not None
    for words in ((word,), ("auto", word)):
        left = opened(tmp_path, houses(sold=sold), missing="drop", missing_values=words)
        assert set(left.spec.target.classes) == {"Mild", "Strong"}
    without = written(tmp_path, f"size,city,sold\n80,Bonn,{word}\n70,Bonn,Mild\n", "without.csv")
    with pytest.raises(DataError, match="the target is missing"):
        left.preprocessing.labelled(str(without))


@pytest.mark.parametrize("others", [["0", "1"], ["yes", "no"], ["1.5", "2.5"]])
def test_beside_numbers_and_yes_or_no_such_a_word_is_a_missing_target(tmp_path: Path, others: list[str]) -> None:
    error = rejection(tmp_path, houses(sold=np.resize([*others, "NA"], 60).tolist()))
    assert "the target is missing, which is what 'NA' stands for" in str(error)
