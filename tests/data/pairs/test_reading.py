"""Pairs as people write them, and as they should not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cutaway.core.errors import DataError, FileError
from cutaway.data.text.text_files import read_lines, read_pairs


def test_one_file_with_tabs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_bytes('"read"\tR IY D\r\nsay "no"\tS\x85T\u2028 \n'.encode())
    pairs = read_pairs(str(path))
    assert pairs.sources == ['"read"', 'say "no"']  # quotes are characters
    assert pairs.targets == ["R IY D", "S\x85T\u2028 "]  # a line ends at a line feed and nowhere else
    assert (len(pairs), pairs.place(1)) == (2, "line 2 of pairs.tsv")


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\rb\nc\r\nd\r\r\n", ["a\rb", "c", "d\r"]),
        (b"a\n\r\nb", ["a", "", "b"]),
        (b"a\rb\r\rc\r", ["a", "b", "", "c"]),
        ("a\u2028b\vc\x85d".encode(), ["a\u2028b\vc\x85d"]),
        (b"", []),
    ],
)
def test_carriage_returns_end_lines_only_in_files_without_line_feeds(
    tmp_path: Path, data: bytes, lines: list[str]
) -> None:
    for name, content in (("lines.txt", data), ("lines.txt.gz", gzip.compress(data, mtime=0))):
        (tmp_path / name).write_bytes(content)
        assert read_lines(tmp_path / name)[0] == lines


def test_two_files_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ja\nnein", encoding="utf-8-sig")
    (tmp_path / "b,c.txt.gz").write_bytes(gzip.compress(b"yes\nno\n", mtime=0))
    pairs = read_pairs(f"{tmp_path}/a.txt,{tmp_path}/b,c.txt.gz")
    assert (pairs.sources, pairs.targets) == (["ja", "nein"], ["yes", "no"])
    (tmp_path / "a.txt").write_text("ja\ndoch")
    assert read_pairs(f"{tmp_path}/a.txt,{tmp_path}/b,c.txt.gz").fingerprint != pairs.fingerprint


def test_every_line_that_is_no_pair_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("a\tb\na b\n\na\tb\tc\n \tb\na\t\n")
    with pytest.raises(DataError) as caught:
        read_pairs(str(path))
    assert [str(p) for p in caught.value.problems] == [
        "p.tsv, line 2: it has 0 tabs",
        "p.tsv, line 3: it is empty",
        "p.tsv, line 4: it has 2 tabs",
        "p.tsv, line 5: its source is empty",
        "p.tsv, line 6: its target is empty",
    ]
    assert "Quotes are characters" in str(caught.value)


def test_a_file_shorter_than_the_other_is_rejected_with_both_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")
    with pytest.raises(DataError, match=r"a has 3 lines and .*b has 2"):
        read_pairs(f"{tmp_path}/a,{tmp_path}/b")
    (tmp_path / "b").write_text("1\n\n3\n")
    with pytest.raises(DataError, match="b, line 2: it is empty"):
        read_pairs(f"{tmp_path}/a,{tmp_path}/b")


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"a\tb\nc\td\xff\n", "p.tsv", r"p\.tsv: it is not UTF-8: byte 7 \(line 2\) is 0xFF"),
        ("a\tb\n".encode("utf-16"), "p.tsv", r"p\.tsv: it is UTF-16 text, not UTF-8"),
        (b"", "p.tsv", r"it is empty \(0 bytes\)"),
        (b"no gzip", "p.tsv.gz", r"not a complete \.gz file"),
        (gzip.compress(b"a\tb\n" * 99, mtime=0)[:-9], "p.tsv.gz", r"not a complete \.gz file"),
    ],
)
def test_files_that_hold_no_text(tmp_path: Path, data: bytes, name: str, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=said):
        read_pairs(str(tmp_path / name))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    with pytest.raises(DataError, match=r"no file .*/b'"):
        read_pairs(f"{tmp_path}/a,{tmp_path}/b")
    with pytest.raises(DataError, match=r"no file .*nothing\.tsv"):
        read_pairs(str(tmp_path / "nothing.tsv"))
    with pytest.raises(DataError, match="is a folder"):
        read_pairs(str(tmp_path))
    with pytest.raises(FileError, match="There is no file"):
        read_lines(tmp_path / "nothing")
