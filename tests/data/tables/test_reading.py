"""Tables are read as text with the line of every row; what is no whole table is rejected with file and line."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, FileError
from cutaway.data.tables.dataset import _values
from cutaway.data.tables.delimited import CHUNK, Form
from cutaway.data.tables.table_files import frame_table, read_table, rows_table


def written(tmp_path: Path, content: str | bytes, name: str = "houses.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rejection(path: Path) -> str:
    with pytest.raises(DataError) as rejected:
        read_table(path)
    return str(rejected.value)


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=8))
def test_what_a_csv_writer_wrote_is_read_back_with_its_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    lines = ["a,b,c"]
    for row in rows:
        buffer = io.StringIO()
        csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="").writerow(row)
        lines.append(buffer.getvalue())
    path = written(tmp_path_factory.mktemp("csv"), "\n".join(lines))
    table = read_table(path)
    assert table.frame.rows() == rows
    # A row begins one line below the line ends of all that stands before it, those inside quotes too.
    ends = [len(io.StringIO("\n".join(lines[:k]) + "\n", newline="").readlines()) for k in range(1, len(lines))]
    assert table.lines is not None
    assert table.lines.tolist() == [end + 1 for end in ends]


def test_places_count_lines_of_text_and_rows_of_anything_else(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, 'a,b\n1,"two\nlines"\n3,4\n'))
    assert [table.place(0), table.place(1)] == ["line 2 of houses.csv", "line 4 of houses.csv"]
    assert table.where(1, "b") == "houses.csv, line 4, column b"
    assert table.row(0) == {"a": "1", "b": "two\nlines"}
    path = tmp_path / "houses.parquet"
    pl.DataFrame({"a": [1, 2]}).write_parquet(path)
    assert read_table(path).place(1) == "row 2 of houses.parquet"
    assert rows_table([{"a": 1}]).place(0) == "row 1"
    assert rows_table([{"a": 1}]).where(0, "a") == "row 1, column a"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "a,b\n1,2\n", ""),
        ("a.csv", "\ufeffa,b\r\n1,2\r\n", ""),
        ("a.csv", "a,b\r1,2", ""),
        ("a.csv", "a;b\n1;2\n", "separated by semicolons"),
        ("a.csv", "a\tb\n1\t2\n", "separated by tabs"),
        ("a.csv", '"a","b"\n"1","2"', ""),
        ("a.tsv", "a\tb\n1\t2\n", ""),
        ("a.TSV", "a,b\n1,2\n", "separated by commas"),
        ("a.csv", "\n\na,b\n\n1,2\n\n\n", "3 empty lines of a.csv are no rows: line 1, 2, 4."),
    ],
)
def test_common_ways_to_write_a_table(tmp_path: Path, name: str, text: str, said: str) -> None:
    table = read_table(written(tmp_path, text, name))
    assert table.columns == ["a", "b"]
    assert table.frame.rows() == [("1", "2")]
    assert bool(table.notes) == bool(said)
    assert said in " ".join(table.notes)


def test_a_delimiter_inside_quotes_does_not_count(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, '"a;;;",b\n1,2\n')).columns == ["a;;;", "b"]


def test_header_names_keep_their_spaces(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "a, b\n1, 2\n")).columns == ["a", " b"]


@pytest.mark.slow
def test_a_header_wider_than_a_csv_field_may_be(tmp_path: Path) -> None:
    names = [f"gene{i}" for i in range(30_000)]
    table = read_table(written(tmp_path, ",".join(names) + "\n" + ",".join("1" for _ in names)))
    assert table.columns == names


def test_more_rows_than_a_chunk(tmp_path: Path) -> None:
    count = 2 * CHUNK + 3
    table = read_table(written(tmp_path, "a,b\n" + "".join(f"{i},x\n" for i in range(count))))
    assert table.frame["a"].cast(pl.Int64).to_list() == list(range(count))
    assert table.place(count - 1) == f"line {count + 1} of houses.csv"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty", "0 bytes"]),
        ("a,b\n", ["no rows below its header"]),
        ("\n\n", ["it is empty (2 bytes)"]),
        ("a,a\n1,2\n", ["line 1", "columns 1 and 2", "'a'"]),
        (",b,\n1,2,3\n", ["line 1", "column 1 and column 3 of 3 has no name", "header=false"]),
        ("a,b\n0,1,2\n1,3,4\n", ["one cell more than the header"]),
        ("sales of May\na,b\n1,2\n", ["No row has as many cells"]),
        (b"a,b\n1,\xe9\n", ["not UTF-8", "byte 6", "line 2", "0xE9", "encoding=windows-1252"]),
        ("a,b\n1,é".encode()[:-1], ["not UTF-8", "line 2", "unexpected end"]),
        ("5.1,x\n4.9,y\n5.0,x\n", ["has no header", "header=false", "header=true"]),
        ("0,0,1\n0,1,1\n", ["columns 1 and 2", "header=false"]),
        (b"a,b\n1,\0\n", ["not text", "byte 6", "line 2"]),
        (b"a,b\n\0\0", ["not text", "spreadsheet or an archive"]),
        (
            b"PK\x03\x04\0\0",
            ["is not a table: it begins as a .zip or .xlsx file does", "Was the right file downloaded"],
        ),
        (b"\n<!DOCTYPE html><title>404</title>", ["is not a table: it begins as a web page does"]),
        (b"%PDF-1.7\n%\xe2\xe3\n", ["is not a table: it begins as a PDF does"]),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", ["is not a table: it begins as a JPEG image does"]),
        ('a,b\n1,"2\n3,4\n', ["line 2", "not closed up to line 3", "cut short"]),
        ('a,b\n1,"2"3\n', ["line 2", "after a closing quote"]),
        ("a,b\n1,2\n3\n", ["1 row with", "line 3: 1 cells, 2 expected", "was the file cut short?"]),
        ("a,b\n1\n3,4,5\n1,2\n", ["2 rows", "line 2: 1 cells, 2 expected", "line 3: 3 cells, 2 expected", "quotes"]),
        ("a,b\n1,2\n   \n", ["line 3: 1 cells, 2 expected"]),
    ],
)
def test_what_is_no_whole_table_is_rejected_with_its_line(
    tmp_path: Path, content: str | bytes, words: list[str]
) -> None:
    message = rejection(written(tmp_path, content))
    assert "houses.csv" in message
    for word in words:
        assert word in message


def test_every_ragged_row_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(DataError) as rejected:
        read_table(written(tmp_path, "a,b\n" + "1\n" * 20 + "1,2\n"))
    assert [p.where for p in rejected.value.problems] == [f"houses.csv, line {k}" for k in range(2, 22)]


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none.csv", "There is no file"), (tmp_path, "could not be read: it is a folder")):
        with pytest.raises(FileError, match=said):
            read_table(path)


def test_parquet_gives_every_type_as_text(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "f": [0.1, float("nan"), None],
            "i": [1, None, 3],
            "b": [True, False, None],
            "d": [datetime.date(2020, 12, 31), None, None],
            "s": ["01", "x", None],
        }
    )
    path = tmp_path / "some.parquet"
    frame.write_parquet(path)
    assert read_table(path).frame.rows() == [
        ("0.1", "1", "true", "2020-12-31", "01"),
        (None, None, "false", None, "x"),
        (None, "3", None, None, None),
    ]
    assert read_table(path).row(2)["s"] == ""


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(allow_nan=False), min_size=1))
def test_text_gives_floats_back_to_the_last_bit(values: list[float]) -> None:
    frame = frame_table(pl.DataFrame({"v": pl.Series(values, dtype=pl.Float64)})).frame
    read = frame["v"].cast(pl.Float64).to_numpy()
    assert np.array_equal(read.view(np.uint64), np.array(values).view(np.uint64))


def test_a_damaged_parquet_file_is_rejected(tmp_path: Path) -> None:
    whole = io.BytesIO()
    pl.DataFrame({"a": list(range(500)), "b": ["x"] * 500}).write_parquet(whole)
    data = whole.getvalue()
    assert "not a whole Parquet file" in rejection(written(tmp_path, data[:-9], "a.parquet"))
    assert "0 bytes" in rejection(written(tmp_path, b"", "a.parquet"))
    assert "not a whole Parquet file" in rejection(written(tmp_path, b"a,b\n1,2\n", "a.parquet"))
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(data), 60):
        changed = bytearray(data)
        changed[position] ^= 0xFF
        with contextlib.suppress(DataError):  # and never polars' own error, nor its panic
            read_table(written(tmp_path, bytes(changed), "a.parquet"))


def test_columns_of_lists_and_bytes_are_rejected() -> None:
    for values in ([[1, 2]], [b"x"], [{"k": 1}]):
        with pytest.raises(DataError, match="Column 'odd' of the table"):
            frame_table(pl.DataFrame({"odd": values}))


def test_rows_in_memory_must_have_the_same_columns() -> None:
    table = rows_table([{"a": 1, "b": None}, {"b": True, "a": 0.5}])
    assert table.frame.rows() == [("1", None), ("0.5", "True")]
    with pytest.raises(DataError, match="Row 2 and row 1 differ in the columns they have: 'b', 'c'"):
        rows_table([{"a": 1, "b": 2}, {"a": 1, "c": 2}])


@pytest.mark.parametrize(
    ("content", "form", "expected"),
    [
        ("a;b\n1.234,50;3,5\n2.000,00;4,75\n", {}, ["1234.50", "3.5"]),
        ("a;b\n3,5;1.234\n4,5;2.345\n", {}, ["3.5", "1234"]),  # no decimal point where the file has commas
        ("a;b\n1,234;1\n1,500;2\n", {}, ["1.234", "1"]),  # where semicolons split, commas are in the numbers
        ("a;b\n0.998;1.500\n1.500;2.500\n", {}, ["0.998", "1.500"]),
        ("a;b\n1.234;x\n1.500;y\n", {}, ["1.234", "x"]),
        ("a;b\n1.234.567;x\n2.345.678;y\n", {}, ["1234567", "x"]),
        ('a,b\n"1,234",x\n"12,345",y\n', {}, ["1234", "x"]),
        ('a,b\n"1,234.5",x\n"12",y\n', {}, ["1234.5", "x"]),
        ('a,b\n"3,5",1.5\n"4,5",2.5\n', {}, ["3.5", "1.5"]),  # each column by its own cells
        ("a,b\n1 234,5\n12\u202f345,6\n", {}, ["1234", "5"]),
        ("a,b\n1'234,5\n12’345,6\n", {}, ["1234", "5"]),
        ("a;b\n-3,5e-2;+4,5\n1,0;2,0\n", {}, ["-3.5e-2", "+4.5"]),
        ("a;b\n31.12.2020;2020-12-31\n01.01.2021;2021-01-01\n", {}, ["31.12.2020", "2020-12-31"]),
        ("a;b\n1,5 Liter;10.0.0.1\n2,5 Liter;10.0.0.2\n", {}, ["1.5", "10.0.0.1"]),
        ("a;b\n3,5;1\n3.5;2\n", {}, ["3,5", "1"]),  # both ways in one column: rejected later, cell by cell
        ("a;b\n3,5;1\n4,5;2\n", {"decimal": "."}, ["3,5", "1"]),
        ("a,b\n1.234,x\n2.345,y\n", {"decimal": ","}, ["1234", "x"]),
        ("a|b\n1|2\n3|4\n", {}, ["1", "2"]),
        ("a;b,c\n1;2\n", {"separator": ","}, None),
        ("a:b;c\n1:2;3\n", {"separator": ";"}, ["1:2", "3"]),
        ("5.1,x\n4.9,y\n", {"header": False}, ["5.1", "x"]),
        ("country,2019,2020\nx,1900,2000\n", {}, ["x", "1900", "2000"]),
        ("0,1,2\n5,6,7\n8,9,10\n", {}, ["5", "6", "7"]),
        ("größe,b\n1,2\n".encode("cp1252"), {"encoding": "windows-1252"}, ["1", "2"]),
        ("größe\tb\n1\t2\n".encode("utf-16"), {}, ["1", "2"]),
        ("größe\tb\n1\t2\n".encode("utf-16"), {"encoding": "shift_jis"}, None),
    ],
)
def test_how_a_table_is_written(
    tmp_path: Path, content: str | bytes, form: dict[str, Any], expected: list[str] | None
) -> None:
    path = written(tmp_path, content)
    if expected is None:
        with pytest.raises(DataError):
            read_table(path, Form(**form))
        return
    table = read_table(path, Form(**form))
    assert list(table.frame.row(0)) == expected
    changed = expected[0] not in (content if isinstance(content, str) else "")
    assert any(" is read as " in note for note in table.notes) >= changed - isinstance(content, bytes)


def test_a_column_without_a_header_has_a_name_and_its_line(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "5.1,x\n4.9,y\n"), Form(header=False))
    assert table.columns == ["column_1", "column_2"]
    assert table.place(0) == "line 1 of houses.csv"


def test_what_a_file_leaves_open_is_as_it_was_in_training(tmp_path: Path) -> None:
    content = 'a,b\n"1,234",x\n'
    for decimal, cell in ((",", "1.234"), (".", "1234")):
        kept = Form.from_json(Form(decimal=decimal).to_json())
        assert read_table(written(tmp_path, content), kept).frame["a"][0] == cell
    assert read_table(written(tmp_path, 'a,b\n"3,5",x\n'), Form(decimal=".").as_default()).frame["a"][0] == "3.5"
    latin = Form(encoding="windows-1252").as_default()
    assert read_table(written(tmp_path, "a,b\né,1\n"), latin).frame["a"][0] == "é"
    assert read_table(written(tmp_path, "a,b\né,1\n".encode("cp1252")), latin).frame["a"][0] == "é"


def test_a_long_document_in_a_cell(tmp_path: Path) -> None:
    document = "word " * 60_000
    assert read_table(written(tmp_path, f'a,b\n"{document}",1\n')).frame["a"][0] == document


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sep=,\na,b\n1,2\n", ""),
        ('"sep=;"\r\na;b\r\n1;2\r\n', ""),
        ("# exported\n# by lab, room 3\na,b\n1,2\n", "2 lines of a.csv begin with # and are no rows: line 1, 2."),
        ("a,b\n1,2\n# the end\n", "1 lines of a.csv begin with # and are no rows: line 3."),
        ("a,b,\n1,2,\n", "Column 3 of a.csv has neither a name nor cells and is left out."),
        ("a,b\n1,2,\n", "1 rows of a.csv end with a delimiter too many: line 2."),
    ],
)
def test_lines_and_columns_that_hold_no_data_are_left_out(tmp_path: Path, text: str, said: str) -> None:
    table = read_table(written(tmp_path, text, "a.csv"))
    assert table.columns == ["a", "b"]
    assert table.frame.rows() == [("1", "2")]
    assert table.lines is not None
    assert text.splitlines()[table.lines[0] - 1].startswith("1")
    assert table.notes == ((said,) if said else ())


def test_a_header_that_begins_with_a_number_sign_is_one(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "# two lines\n#a,b\n1,2\n3,4\n"))
    assert table.columns == ["#a", "b"]
    assert len(table) == 2
    assert read_table(written(tmp_path, "# a,b\n1,2\n3,4\n")).columns == ["# a", "b"]  # as NumPy writes one


def test_a_column_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, ",a,y\n0,5.5,x\n1,6.5,z\n"))
    assert table.columns == ["column_1", "a", "y"]
    assert table.notes == ("Column 1 of houses.csv has no name and is called column_1.",)
    with pytest.raises(DataError, match="has no header"):  # as without the gap
        read_table(written(tmp_path, "5.1,,x\n4.9,1,y\n5.2,2,z\n"))


MERGED = 'label\ttext\nham\t"Hello\nspam\twin now\nham\tbye"\nham\tsee you\n'


def test_quotes_of_tab_separated_text_are_text_where_each_line_is_a_row(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, MERGED, "sms.tsv"))
    assert table.frame["text"].to_list() == ['"Hello', "win now", 'bye"', "see you"]
    (note,) = table.notes
    assert "Quotes are text in sms.tsv; as marks around cells, lines 2 to 4 would be one row" in note
    assert "quoting=standard" in note
    assert table.form.quoting == "none"
    marks = read_table(written(tmp_path, MERGED, "sms.tsv"), Form(quoting="standard"))
    assert marks.frame["text"].to_list() == ["Hello\nspam\twin now\nham\tbye", "see you"]
    kept = Form.from_json(table.form.to_json())
    again = read_table(written(tmp_path, 'label\ttext\nham\t"Hello"\n', "new.tsv"), kept)
    assert again.frame["text"].to_list() == ['"Hello"']


def test_text_after_a_closing_quote_is_text_in_a_file_of_tabs(tmp_path: Path) -> None:
    content = 'label\ttext\nham\t"No" he said\nspam\t"win"\n'
    table = read_table(written(tmp_path, content, "sms.tsv"))
    assert table.frame["text"].to_list() == ['"No" he said', '"win"']
    with pytest.raises(DataError, match="quoting=none reads all quotes as text"):
        read_table(written(tmp_path, content, "sms.tsv"), Form(quoting="standard"))
    commas = written(tmp_path, content.replace("\t", ","))
    with pytest.raises(DataError, match="quoting=none"):
        read_table(commas)
    assert read_table(commas, Form(quoting="none")).frame["text"].to_list() == ['"No" he said', '"win"']


def test_cells_of_several_lines_stay_and_are_told_where_each_line_could_be_a_row(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, 'name,address\nBob,"Main St\nBoston, MA"\n'))
    assert table.frame["address"].to_list() == ["Main St\nBoston, MA"]
    assert table.notes == (
        "By the quotes of houses.csv, lines 2 to 3 are one row; quoting=none reads each line as a row.",
    )
    assert read_table(written(tmp_path, 'a\tb\n1\t"x\ny"\n', "a.tsv")).frame["b"].to_list() == ["x\ny"]
    assert read_table(written(tmp_path, 'a,b\n1,"x\ny"\n')).notes == ()


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    head = "value,variable,cell,present,count,index,len,="
    table = read_table(written(tmp_path, f"{head}\n1.5,2,3,4,5,6,7,8\n2.5,3,4,5,6,7,8,9\n"))
    assert table.frame.columns == head.split(",")
    assert table.frame.row(0) == ("1.5", "2", "3", "4", "5", "6", "7", "8")
    table = read_table(written(tmp_path, "variable;value\n1,5;2\n2,5;3\n"))
    assert table.frame.rows() == [("1.5", "2"), ("2.5", "3")]  # numbers are converted in the column that has them


def test_values_of_a_column_named_count_are_counted() -> None:
    assert _values(pl.Series("count", ["a", "b", "a"]))["counts"] == [2, 1]
