"""What a trained model of text, pairs, series, sound, video or graphs is given that it cannot take; and what is odd in
text and must not stop anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from . import own_files
from .conftest import Answer
from .test_bad_input import expect_rejection

Cli = Callable[..., Answer]

SMALL = ("epochs=1", "tensorboard=false", "model.hidden_dim=4")
DATA = {  # a model for each, and its data
    "reviews": ("gru", "reviews.tsv", "text=text", "target=label", "max_samples=40"),
    "tags": ("gru", "tagged.conll", "max_samples=20"),
    "book": ("gru", "book.txt", "max_samples=10", "val=0.01", "test=0.01"),
    "pairs": ("seq2seq-gru", "pairs.tsv", "pairs=true", "max_samples=50"),
    "visits": ("gru", "visits.csv", "forecast=visits", "horizon=4", "max_samples=40"),
    "sounds": ("gru", "sounds", "n_mels=8"),
    "videos": ("cnn-lstm", "videos", "frames=4", "model.channels=2,2"),
    "graph": ("gcn", "graph", "target=club"),
    "words": ("word2vec-skipgram", "book.txt", "model.dim=4"),
}


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which runs of this session are kept once they were trained."""
    folder = tmp_path_factory.mktemp("shelf")
    own_files.write(folder)
    return folder


@pytest.fixture
def run(cli: Cli, shelf: Path) -> Callable[[str], str]:
    """`run("book")` is the folder of a run on that data; the data stands where the command line is."""
    for path in shelf.iterdir():
        if path.name != "kept":
            Path(path.name).symlink_to(path)

    def trained(name: str) -> str:
        kept = shelf / "kept" / name
        if not kept.exists():
            settings = SMALL[:2] if name == "words" else SMALL
            answer = cli("train", *DATA[name], *settings, "--out", "trained")
            assert answer.status == 0, answer.err
            shutil.copytree("trained", kept)
            shutil.rmtree("trained")
        return str(kept)

    return trained


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("reviews", "new.txt", ["not there", "new.txt"]),
        ("reviews", "new.tsv", ["not there", "new.tsv"]),
        ("reviews", "visits.csv", ["in the column 'text', which visits.csv lacks", "'time', 'visits'"]),
        ("reviews", "sounds/tone/01.wav", ["01.wav", "not text"]),
        ("reviews", "sounds", ["sounds holds no text files"]),
        ("tags", "reviews.tsv", ["reviews.tsv is a table", ".conll"]),
        ("tags", "sounds/tone/01.wav", ["01.wav", "not text"]),
        ("book", "new.txt", ["not there", "new.txt"]),
        ("book", "sounds", ["sounds is a folder without .txt files"]),
        ("book", "", ["0 of the tokens", "at least two"]),
        ("pairs", "new.txt", ["no file 'new.txt'"]),
        ("pairs", "pairs.tsv", ["line 1 of pairs.tsv", "one source a line"]),
        ("pairs", " ", ["it is empty"]),
        ("pairs", "sounds/tone/01.wav", ["01.wav", "not UTF-8"]),
        ("visits", "new.csv", ["new.csv could not be read", "No such file"]),
        ("visits", "reviews.tsv", ["reviews.tsv has no column 'visits'", "It has: text, label"]),
        ("visits", "book.txt", ["book.txt is no table", ".csv"]),
        ("visits", "short.csv", ["short.csv has 5 steps", "the last 16"]),
        ("sounds", "new.wav", ["no audio file 'new.wav'"]),
        ("sounds", "book.txt", ["book.txt is not an audio file", ".wav"]),
        ("sounds", "videos", ["videos is a folder without audio files"]),
        ("videos", "sounds/tone/01.wav", ["neither a video file", "nor a folder of frames"]),
        ("videos", "new.mp4", ["no video 'new.mp4'"]),
        ("graph", "new", ["no graph at 'new'", "nodes.csv and edges.csv"]),
        ("graph", "sounds", ["sounds holds no graph"]),
        ("graph", "smaller", ["33 nodes", "34 nodes", "by their names alone"]),
        ("words", "xyzzy plugh", ["no word in these vectors", "'xyzzy plugh'"]),
    ],
)
def test_predicting_what_is_of_another_kind(
    run: Callable[[str], str], cli: Cli, name: str, given: str, said: list[str]
) -> None:
    folder = run(name)
    Path("short.csv").write_text("".join(Path("visits.csv").read_text().splitlines(keepends=True)[:6]))
    if given == "smaller":
        Path("smaller").mkdir()
        for file in ("nodes.csv", "edges.csv"):
            lines = Path("graph", file).read_text().splitlines()
            Path("smaller", file).write_text("\n".join(line for line in lines if "33" not in line.split(",")))
    expect_rejection(cli("predict", folder, given), *said)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("reviews", "book.txt", ["book.txt holds no texts with targets", "'text' and 'label'"]),
        ("reviews", "other.tsv", ["other.tsv", "'middling'"]),
        ("tags", "other.conll", ["other.conll", "'NOUN' is no tag", "CAPITAL"]),
        ("pairs", "book.txt", ["book.txt, line 1", "tabs"]),
        ("visits", "short.csv", ["short.csv has 5 steps", "20 are needed"]),
        ("sounds", "videos", ["holds no audio files"]),
        ("graph", "sounds", ["sounds holds no graph"]),
    ],
)
def test_evaluating_on_what_is_of_another_kind(
    run: Callable[[str], str], cli: Cli, name: str, given: str, said: list[str]
) -> None:
    folder = run(name)
    Path("short.csv").write_text("".join(Path("visits.csv").read_text().splitlines(keepends=True)[:6]))
    Path("other.tsv").write_text("text\tlabel\nso so\tmiddling\n")
    Path("other.conll").write_text("The\tNOUN\n")
    expect_rejection(cli("evaluate", folder, given), *said)


@pytest.mark.parametrize("name", ["reviews", "tags", "visits", "sounds", "words"])
def test_what_writes_no_text_says_what_it_is(run: Callable[[str], str], cli: Cli, name: str) -> None:
    folder = run(name)
    expect_rejection(
        cli("generate", folder), "cannot generate", DATA[name][0], DATA[name][1], "cutaway train lstm book.txt"
    )


def test_prompts_and_settings_that_cannot_be(run: Callable[[str], str], cli: Cli) -> None:
    book, pairs = run("book"), run("pairs")
    expect_rejection(cli("generate", book, "--prompt", "☃☃"), "has only unknown tokens", "'☃'")
    expect_rejection(cli("generate", book, "--count", "0"), "count=0")
    expect_rejection(cli("generate", book, "--top-p", "2"), "top_p=2")
    expect_rejection(cli("generate", book, "--num-beams", "3"), "--num-beams is only for sequence pairs")
    expect_rejection(cli("generate", pairs), "--prompt")
    expect_rejection(
        cli("generate", pairs, "--prompt", "42", "--temperature", "1", "--num-beams", "2"),
        "--num-beams and --temperature exclude each other",
    )
    expect_rejection(cli("generate", "nowhere"), "nowhere is not a run")


# --- odd text -----------------------------------------------------------------------------------------------------

ODD = {
    "right to left": "שלום עולם، مرحبا بالعالم",
    "combining": "e\u0301 n\u0303 क्षि กำ",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🇩🇪 😀",
    "controls": "a\u200bb\u00adc \u2028 d \x0b e",
    "long": "word " * 20_000,
    "one long word": "x" * 100_000,
    "quotes": "\"'“”«»",
}


@pytest.mark.parametrize("tokenizer", ["words", "characters", "bpe", "wordpiece"])
def test_odd_texts_are_learned_from_and_classified(cli: Cli, tokenizer: str) -> None:
    rows = [f"{(text + ' ' + str(i)) if label == 'a' else 'plain ' + str(i)}\t{label}"
            for i, text in enumerate(ODD.values()) for label in "ab" for _ in range(3) if '"' not in text]  # fmt: skip
    Path("odd.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    words = ("odd.tsv", "text=text", "target=label", f"tokenizer={tokenizer}", "vocab_size=600", "length=200")
    answer = cli("train", "textcnn", *words, "model.dim=4", *SMALL[:2], "--out", "r")
    assert answer.status == 0, answer.err
    assert "more than 200 tokens and" in answer.said
    given = [*ODD.values(), "", "\n\n", "☃"]
    answer = cli("predict", "r", *given, "--json")
    assert answer.status == 0, answer.err
    rows = json.loads(answer.out)
    assert [row["label"] in ("a", "b") for row in rows] == [True] * len(given)


@pytest.mark.parametrize("tokenizer", ["characters", "words", "bpe", "wordpiece"])
def test_odd_text_that_runs_on(cli: Cli, tokenizer: str) -> None:
    book = "\n\n\n".join(ODD.values())[:130_000] + "\n\n" + "שלום 😀 e\u0301 the end. " * 20
    Path("odd.txt").write_text(book, encoding="utf-8")
    words = ("odd.txt", f"tokenizer={tokenizer}", "vocab_size=600", "max_samples=20", "val=0", "test=0.01")
    answer = cli("train", "gru", *words, *SMALL, "--out", "r")
    assert answer.status == 0, answer.err
    answer = cli(
        "predict", "r", *(text for name, text in ODD.items() if name not in ("long", "one long word")), "--json"
    )
    assert answer.status == 0, answer.err
    assert all(row["loss"] > 0 for row in json.loads(answer.out))
    assert cli("generate", "r", "--prompt", "word 😀", "--count", "20").status == 0


def test_a_run_without_a_model_says_how_to_go_on(cli: Cli) -> None:
    assert cli("train", "mlp", "iris", *SMALL[:2], "--out", "begun").status == 0
    shutil.rmtree(Path("begun", "model"))
    for words in (("predict", "begun", "x.csv"), ("evaluate", "begun", "x.csv"), ("inspect", "begun")):
        expect_rejection(cli(*words), "begun has no model yet", "cutaway train --resume begun")


def test_a_folder_of_other_tables_is_no_input(cli: Cli) -> None:
    assert cli("train", "mlp", "iris", *SMALL[:2], "--out", "trained").status == 0
    Path("tables").mkdir()
    Path("tables", "new.csv").write_text("a\n1\n")
    answer = cli("predict", "trained", "tables")
    expect_rejection(answer, "tables is a folder without Parquet files (.parquet)", "Give a table file: .csv, .tsv or")


@pytest.mark.parametrize("missing", ["drop", "error"])
def test_one_unreadable_series_of_several(cli: Cli, missing: str) -> None:
    shops = {
        name: [f"{name},2024-{1 + day // 28:02}-{1 + day % 28:02},{level + day % 7}" for day in range(56)]
        for name, level in (("north", 3), ("south", 500), ("west", 40))
    }
    for path, names in (("good.csv", ("north", "south", "west")), ("two.csv", ("north", "west"))):
        Path(path).write_text("\n".join(["shop,day,sales", *(row for name in names for row in shops[name])]) + "\n")
    Path("bad.csv").write_text(Path("good.csv").read_text().replace("south,2024-01-20,505", "south,2024-01-20,many"))
    settings = ("forecast=sales", "id=shop", "horizon=3", "lookback=7", "gaps=skip", f"missing={missing}")
    assert cli("train", "gru", "good.csv", *settings, *SMALL, "--out", "trained").status == 0
    answer = cli("predict", "trained", "bad.csv", "--out", "bad-predictions.csv")
    if missing == "error":
        expect_rejection(answer, "line 77, column sales", "'many'", "In training missing=drop leaves this series out")
        assert not Path("bad-predictions.csv").exists()
        expect_rejection(cli("evaluate", "trained", "bad.csv"), "line 77, column sales", "'many'")
        return
    assert answer.status == 0
    assert (
        "note: missing=drop left out 1 of 3 series of bad.csv: shop south: bad.csv (shop south), line 77" in answer.err
    )
    assert "2 predictions in bad-predictions.csv" in answer.said
    assert cli("predict", "trained", "two.csv", "--out", "two-predictions.csv").status == 0
    bad, two = (Path(f"{name}-predictions.csv").read_text() for name in ("bad", "two"))
    assert bad == two.replace("two.csv", "bad.csv")
    evaluated = cli("evaluate", "trained", "bad.csv", "--json")
    assert evaluated.status == 0, evaluated.err
    assert "note: missing=drop left out 1 of 3 series of bad.csv: shop south: " in evaluated.err
    assert json.loads(evaluated.out) == json.loads(cli("evaluate", "trained", "two.csv", "--json").out)
