"""Paths that are no data: what is missing is said, and nothing of a name or a folder ends in a traceback."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import networkx
import numpy as np
import polars as pl
import pytest
from PIL import Image

from cutaway.apps.cli import main
from cutaway.core.errors import CutawayError, DataError, FileError
from cutaway.data.graphs.graph_files import read_graphs
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.streaming.file_index import IndexedFile, Member
from cutaway.data.streaming.shards import file_sha256
from cutaway.data.tables.table_files import read_table
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.data.text.tokenizers import train_bpe


def rejection(source: object, **settings: object) -> str:
    with pytest.raises(CutawayError) as rejected:
        open_data(source, DataSettings(**settings))  # type: ignore[arg-type]
    return str(rejected.value)


def test_a_flat_folder_lacks_class_folders(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    said = rejection(tmp_path)
    assert "holds 1 image file and no class folders" in said
    assert str(tmp_path / "cats" / "a.png") in said


@pytest.mark.parametrize("address", ["https://example.org/t.csv", "http://x/y.zip", "s3://bucket/t.csv"])
def test_an_address_is_not_fetched(address: str) -> None:
    assert f"{address} is a URL, and Cutaway does not download" in rejection(address)


PAGE = "https://example.org/a"


@pytest.mark.parametrize(
    "words",
    [
        f"check mlp {PAGE}",
        f"train lenet5 digits weights={PAGE}",
        f"check lenet5 digits @{PAGE}",
        f"check gpt2 book.txt tokenizer={PAGE}",
        f"predict {PAGE} x",
        f"evaluate {PAGE}",
        f"convert {PAGE} out --to cutaway",
        f"convert {PAGE} out --to cutaway --model resnet18",
        f"inspect {PAGE}",
        f"report {PAGE}",
        f"train --resume {PAGE}",
    ],
)
def test_no_door_fetches_an_address(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("a b c d e f " * 50)
    assert main(words.split()) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"cutaway: {PAGE} is a URL, and Cutaway does not download URLs.")
    assert f"`curl -LO {PAGE}`" in said


def test_an_address_of_the_hub_says_how_a_model_is_fetched() -> None:
    said = rejection("https://huggingface.co/org/name/tree/main")
    assert "`hf download org/name --local-dir DIR`" in said
    assert "weights=hub:org/name" in said


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".csv", "a/" + "y" * 5000, "a\0b.csv", ",".join("ab" * 200)])
def test_what_can_be_no_name(name: str) -> None:
    rejection(name)


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    for name in ("t.csv", "t.txt", "t.parquet"):
        os.mkfifo(tmp_path / name)
        assert "a named pipe" in rejection(tmp_path / name, target="a" if name in ("t.csv", "t.parquet") else None)
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "b").mkdir()
    for name in ("a/1.png", "b/1.png"):
        os.mkfifo(tmp_path / "photos" / name)
    assert "a named pipe" in rejection(tmp_path / "photos")
    (tmp_path / "shards").mkdir()
    os.mkfifo(tmp_path / "shards" / "train-000.tar")
    assert "a named pipe" in rejection(tmp_path / "shards")


def test_a_file_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = tmp_path / "pipe"
    for stored in (Member(pipe, "a.png", 0, 4), IndexedFile(pipe, 4, 0, tmp_path / "index")):
        with pytest.raises(DataError, match="a named pipe"):
            stored.read()
    assert "a named pipe" in file_sha256(pipe)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("a,b\n" + "".join(f"{i / 4},{i % 2}\n" for i in range(30)))
    assert len(open_data(path, DataSettings(target="b")).splits["test"])
    for kind in "xy":
        for i in range(4):
            image = tmp_path / "photos" / kind / os.fsdecode(b"caf\xe9%d.png" % i)
            image.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * i + ord(kind)).save(image, "PNG")
    assert open_data(tmp_path / "photos", DataSettings()).fingerprint


def test_durations_are_seconds(tmp_path: Path) -> None:
    pl.DataFrame({"a": [timedelta(seconds=90), None], "b": [1, 2]}).write_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert table.frame["a"].to_list() == ["90.0", None]
    assert "Durations are read in seconds (columns a)." in table.notes


def test_graphml_says_once_what_most_nodes_have(tmp_path: Path) -> None:
    graph = networkx.path_graph(4)
    graph.nodes[1]["kind"] = "b"
    graph.graph["node_default"] = {"kind": "a"}
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    found = read_graphs(tmp_path / "g.graphml", "kind")
    assert found.table is not None
    assert found.table.frame["kind"].to_list() == ["a", "b", "a", "a"]
    networkx.write_graphml(graph, tmp_path / "h.graphml")
    many = read_graphs(tmp_path, "kind")
    assert many.targets is not None
    assert many.targets.columns == []


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0" encoding="nix"?><graphml/>',
        '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="node" '
        'attr.name="n" attr.type="int"><default>many</default></key><graph edgedefault="undirected"/></graphml>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph><node/></graph></graphml>',
    ],
)
def test_damaged_graphml(tmp_path: Path, text: str) -> None:
    (tmp_path / "g.graphml").write_text(text)
    rejection(tmp_path / "g.graphml", target="n")


def test_a_folder_that_is_called_like_a_file(tmp_path: Path) -> None:
    (tmp_path / "g" / "x.graphml").mkdir(parents=True)
    rejection(tmp_path / "g")
    rejection(tmp_path / "g" / "x.graphml")
    (tmp_path / "t.csv").mkdir()
    rejection(tmp_path / "t.csv", target="a")


@pytest.mark.parametrize("vocab_size", [{"a": 10**9, "b": 1, "c": 2}, {"a": -1, "b": 1, "c": 2}, {}])
def test_token_ids_that_no_vocabulary_has(tmp_path: Path, vocab_size: dict[str, int]) -> None:
    document = {"version": "1.0", "model": {"type": "WordLevel", "vocab": vocab_size, "unk_token": "a"}}
    (tmp_path / "tokenizer.json").write_text(str(document).replace("'", '"'))
    with pytest.raises(FileError):
        open_tokenizer(tmp_path / "tokenizer.json")


def test_a_tokenizer_that_cannot_cut_a_text_says_so(tmp_path: Path) -> None:
    split = '{"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": false}'
    for unknown, rule, text in (("[UNK]", "null", "strange"), ("a", split, "a" * 40 + "b")):
        (tmp_path / "tokenizer.json").write_text(
            f'{{"version": "1.0", "pre_tokenizer": {rule}, "model": '
            f'{{"type": "WordLevel", "vocab": {{"a": 0, "b": 1, "c": 2}}, "unk_token": "{unknown}"}}}}'
        )
        tokenizer = open_tokenizer(tmp_path / "tokenizer.json")
        with pytest.raises(DataError, match="cannot cut this text"):
            tokenizer.encode(text)


def test_a_long_text_without_blanks_is_fitted_in_parts() -> None:
    letters = np.random.default_rng(0).choice(list("ACGT"), 40_000)
    long, broken = "".join(letters), " ".join("".join(letters[i : i + 100]) for i in range(0, 40_000, 100))
    sizes = [len(train_bpe([text], 600, 2, False).get_vocab()) for text in (long, broken)]
    assert sizes == [600, 600]
    longest = max(len(token) for token in train_bpe([long], 600, 2, False).get_vocab())
    assert longest <= 100
