"""What bad text, pairs, series, sound, video and graphs get: one paragraph with file, line, cause and the way out."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cutaway.data.synthetic.examples import karate

from . import own_files
from .conftest import Answer
from .test_bad_input import expect_rejection

Cli = Callable[..., Answer]

QUIET = ("epochs=1", "tensorboard=false")
REVIEWS = "text\tlabel\n" + "".join(f"{'bad' if i % 2 else 'fine'} {i}\t{'ab'[i % 2]}\n" for i in range(40))
TAGGED = "The\tWORD\ncat\tWORD\n3\tDIGIT\n\n" * 20
BOOK = "the cat sat on the mat. " * 60
PAIRS = "".join(f"{i}\tn{i}\n" for i in range(30))


def hours(count: int = 200) -> list[str]:
    """The lines of a good series: a time, what is forecast, what is known."""
    begin = datetime.datetime(2024, 1, 1)
    times = [(begin + datetime.timedelta(hours=i)).isoformat(" ", "minutes") for i in range(count)]
    return ["time,y,k", *(f"{time},{i % 24},{i % 2}" for i, time in enumerate(times))]


def rejected(cli: Cli, words: tuple[str, ...], said: list[str]) -> None:
    """Both `train` and `check` reject it, before anything is written."""
    for command in ("train", "check"):
        expect_rejection(cli(command, *words), *said)


# --- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (REVIEWS.replace("fine 6\ta", "fine 6\ta\tmore"), ["r.tsv, line 8", "3 cells, 2 expected", "separator"]),
        (REVIEWS.replace("fine 6\ta", "fine 6"), ["r.tsv, line 8", "1 cells, 2 expected"]),
        (REVIEWS.replace("fine 6\t", "\t").replace("bad 9\t", " \t"),
         ["2 rows of 40 hold no text", "line 8, column text: the text is empty", "line 11", "missing=drop"]),
        (REVIEWS.replace("fine 6\ta", "fine 6\t"), ["r.tsv, line 8, column label", "missing=drop"]),
        (REVIEWS.replace("fine 6", "fin\xe9 6").encode("latin1"), ["r.tsv is not UTF-8", "line 8", "save it as UTF-8"]),
        ("text\tlabel\n" + "x x\ta\nx\tb\n" * 20, ["one only, 'x'", "at least two are needed", "Give more text"]),
        ("", ["r.tsv: it is empty"]),
        ("text\tlabel\n", ["no rows"]),
    ],
)  # fmt: skip
def test_reviews(cli: Cli, content: str | bytes, said: list[str]) -> None:
    Path("r.tsv").write_bytes(content if isinstance(content, bytes) else content.encode())
    rejected(cli, ("textcnn", "r.tsv", "text=text", "target=label"), said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (REVIEWS.replace("fine 6\t", '"fine 6\t'), ["r.tsv, line 8", "a quote is opened", "write it twice"]),
        (
            REVIEWS.replace("fine 6\t", '"fine 6\t').replace("bad 9\t", '"bad 9\t'),
            ["r.tsv, line 11", "closing quote", "written twice"],
        ),
        (
            REVIEWS.replace("fine 6\t", '"fine 6\t').replace("bad 9\tb", 'bad 9"\tb'),
            ["r.tsv, line 8, column text", "a quote opens a cell of 4 lines", "Where quotes are text"],
        ),
    ],
)
def test_reviews_whose_quotes_are_marks(cli: Cli, content: str, said: list[str]) -> None:
    Path("r.tsv").write_text(content)
    rejected(cli, ("textcnn", "r.tsv", "text=text", "target=label", "quoting=standard"), said)


def test_rows_without_text_can_be_left_out(cli: Cli) -> None:
    Path("r.tsv").write_text(REVIEWS.replace("fine 6\t", "\t"))
    words = ("r.tsv", "text=text", "target=label", "missing=drop", "model.dim=4", *QUIET)
    answer = cli("train", "textcnn", *words)
    assert answer.status == 0, answer.err
    assert "missing=drop left out 1 row without text: r.tsv, line 8, column text" in answer.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("textcnn", "r.tsv", "text=text"),
            ["Which column of r.tsv is predicted?", "target=COLUMN", "'text', 'label'"],
        ),
        (("textcnn", "r.tsv", "target=label"), ["takes text data", "table", "can be read as text with text=COLUMN"]),
        (("lstm", "r.tsv", "target=label"), ["as text with text=COLUMN, or as a series with forecast=COLUMN", "mlp"]),
        (("textcnn", "r.tsv", "text=txt", "target=label"), ["no column 'txt'", "Similar: text"]),
        (("textcnn", "r.tsv", "text=text", "target=text"), ["columns of their own"]),
        (("textcnn", "r.tsv", "text=text", "target=label", "vocab_size=2"), ["vocab_size=2", "3 to 1000000"]),
        (("textcnn", "r.tsv", "text=text", "target=label", "n_mels=3"), ["n_mels=3 is for audio", "text data"]),
        (("textcnn", "r.tsv", "text=text", "target=label", "horizon=3"), ["horizon=3 is for series", "leave it out"]),
        (("gcn", "r.tsv", "text=text", "target=label"), ["gcn takes graph data", "text data", "textcnn"]),
        (
            ("word2vec-skipgram", "r.tsv", "text=text", "target=label"),
            ["word2vec-skipgram does not learn", "label", "textcnn"],
        ),
        (("gcn", "book.txt"), ["gcn takes graph data", "text data", "lstm"]),
        (("textcnn", "book.txt"), ["textcnn does not learn", "next token", "lstm"]),
        (("textcnn", "t.conll"), ["textcnn does not learn", "tag", "collobert-window"]),
        (("lstm", "book.txt", "text=text"), ["text= is for texts in tables", "text that runs on"]),
        (("lstm", "book.txt", "num_neighbors=3"), ["num_neighbors=3 is for graphs"]),
        (("lstm", "book.txt", "target=no.txt"), ["target=no.txt", "file of its labels", "no such file in the folder"]),
        (("seq2seq-gru", "book.txt"), ["takes sequence-pair (seq2seq) data", "pairs=true"]),
        (("seq2seq-gru", "book.txt,t.conll"), ["two files", "pairs=true"]),
        (("lstm", "bok.txt"), ["no file or folder 'bok.txt'", "Similar there: book.txt"]),
        (
            ("word2vec-skipgram", "book.txt", "min_count=1000"),
            ["book.txt cannot be used for training", "smaller min_count"],
        ),
    ],
)
def test_incompatible_arguments(cli: Cli, words: tuple[str, ...], said: list[str]) -> None:
    Path("r.tsv").write_text(REVIEWS)
    Path("book.txt").write_text(BOOK)
    Path("t.conll").write_text(TAGGED)
    rejected(cli, words, said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ["book.txt: it is empty", "0 bytes"]),
        (" \n\n", ["split gets no text", "Give more text"]),
        (BOOK.encode() + b"caf\xe9\n", ["book.txt", "not UTF-8", "byte 1,443", "line 1", "Save it as UTF-8"]),
        (BOOK.encode("utf-16"), ["book.txt", "UTF-16"]),
        (BOOK[:60], ["book.txt is too short", "train split has 42 tokens", "at least 65", "smaller length"]),
        ("a" * 2000, ["one only, 'a'", "at least two are needed"]),
        (b"\0\1" * 500, ["book.txt", "not text", "line 1"]),
    ],
)
def test_books(cli: Cli, content: str | bytes, said: list[str]) -> None:
    Path("book.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    rejected(cli, ("lstm", "book.txt"), said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (TAGGED + "alone\n", ["t.conll, line 81", "'alone' has no tag", "its tag last"]),
        (TAGGED + "a\tb\tWORD\n", ["t.conll, line 81", "3 columns, 2 in most lines"]),
        ("# nothing\n\n", ["t.conll holds no sentences"]),
    ],
)
def test_tags(cli: Cli, content: str, said: list[str]) -> None:
    Path("t.conll").write_text(content)
    rejected(cli, ("lstm", "t.conll"), said)


@pytest.mark.parametrize(("labels", "model"), [("A B\n", "collobert-window"), ("a\nb\n", "textcnn")])
def test_a_label_file_that_is_shorter_than_its_text(cli: Cli, labels: str, model: str) -> None:
    Path("s.txt").write_text("one two\n" * 30)
    Path("labels.txt").write_text(labels * (28 // labels.count("\n")))
    said = ["s.txt has 30 lines and labels.txt 28 lines", "line 29 of s.txt has none", "was labels.txt cut short"]
    rejected(cli, (model, "s.txt", "target=labels.txt"), said)


# --- pairs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PAIRS + "no tab\n", ["p.tsv, line 31", "0 tabs", "source, a tab, target"]),
        (PAIRS + "a\tb\tc\n", ["p.tsv, line 31", "2 tabs"]),
        (PAIRS + "a\t\n", ["p.tsv, line 31", "its target is empty"]),
        (PAIRS + "\n\n", ["p.tsv, line 31: it is empty", "p.tsv, line 32"]),
        ("", ["p.tsv: it is empty"]),
        (PAIRS.encode() + b"caf\xe9\tb\n", ["p.tsv: it is not UTF-8: byte 193 (line 31) is 0xE9"]),
        ("".join(f"{'a' * (1 + i)}\tb{i}\n" for i in range(30)), ["sources", "one only, 'a'"]),
    ],
)
def test_pairs(cli: Cli, content: str | bytes, said: list[str]) -> None:
    Path("p.tsv").write_bytes(content if isinstance(content, bytes) else content.encode())
    rejected(cli, ("seq2seq-gru", "p.tsv", "pairs=true"), said)


def test_two_files_of_pairs(cli: Cli) -> None:
    Path("a.txt").write_text("1\n" * 30)
    Path("b.txt").write_text("one\n" * 29)
    rejected(cli, ("seq2seq-gru", "a.txt,b.txt", "pairs=true"), ["a.txt has 30 lines", "b.txt has 29", "cut short"])
    rejected(cli, ("seq2seq-gru", "a.txt,c.txt", "pairs=true"), ["no file 'c.txt'"])
    rejected(
        cli,
        ("textcnn", "a.txt,b.txt", "pairs=true"),
        ["takes text data", "sequence-pair (seq2seq) data", "seq2seq-gru"],
    )


# --- series -------------------------------------------------------------------------------------------------------

GOOD = hours()
SHORT = ("horizon=4", "lookback=8")


def other(line: str) -> list[str]:
    """The good series with another line 51."""
    return [*GOOD[:50], line, *GOOD[51:]]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([*GOOD[:50], *GOOD[49:]], ["s.csv, line 51, column time", "2024-01-03 00:00 is repeated", "line 50 of s.csv"]),
        ([*GOOD[:50], *GOOD[53:]], ["line 51 of s.csv: 3 steps missing before it", "2024-01-03 01:00", "gaps=fill"]),
        (other("2024-01-03 01:00,,1"), ["s.csv, line 51, column y", "missing", "gaps=fill"]),
        (other("2024-01-03 01:00,oops,1"), ["s.csv, line 51, column y", "'oops' is not a number"]),
        (other("yesterday,1,1"), ["s.csv, line 51, column time", "'yesterday' is not a time"]),
        (other("2024-01-03 01:20,1,1"), ["not evenly spaced", "line 51", "01:20"]),
        (GOOD[:12], ["s.csv has 11 steps, and 20 are needed", "history of 8", "horizon of 4"]),
        (GOOD[:1], ["no rows"]),
        (GOOD[:2], ["s.csv has 1 row", "at least two"]),
        ([f"{line},{'word' if i else 'w'}" for i, line in enumerate(GOOD)], ["column w", "'word'", "ignore=COLUMN"]),
    ],
)  # fmt: skip
def test_series(cli: Cli, lines: list[str], said: list[str]) -> None:
    Path("s.csv").write_text("\n".join(lines) + "\n")
    rejected(cli, ("gru", "s.csv", "forecast=y", *SHORT), said)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("forecast=z",), ["no column 'z'", "Its columns are: time, y, k", "forecast="]),
        (("forecast=y", "known_future=z"), ["no column 'z'", "known_future="]),
        (("forecast=y", "known_future=y"), ["'y' is named in forecast= and in known_future="]),
        (("forecast=y", "time=when"), ["no column 'when'", "time="]),
        (("forecast=y", "time=k"), ["column time", "not numbers", "ignore=COLUMN"]),
        (("forecast=y", "season_length=150"), ["season_length=150 is more than half of the training time"]),
        (("forecast=y", "lookback=500"), ["s.csv has 200 steps", "shorter lookback="]),
        (("forecast=y", "tokenizer=bpe"), ["tokenizer=bpe is for images, text and pairs of sequences"]),
        ((), ["table data", "as a series with forecast=COLUMN"]),
        (("forecast=y", "mixup=0.2", "known_future=k"), ["mixup", "known in advance"]),
    ],
)
def test_settings_of_series(cli: Cli, settings: tuple[str, ...], said: list[str]) -> None:
    Path("s.csv").write_text("\n".join(hours()) + "\n")
    rejected(cli, ("gru", "s.csv", *SHORT, *settings), said)


# --- sound and video ----------------------------------------------------------------------------------------------


def cut_short(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:count])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: cut_short(path, 1000), ["cut short", "956 are there"]),
        (lambda path: cut_short(path, 30), ["not readable as audio"]),
        (lambda path: path.write_bytes(b""), ["it is empty (0 bytes)"]),
        (lambda path: path.write_text("I am a text."), ["not readable as audio"]),
        (lambda path: soundfile.write(path, np.zeros(0), 8000), ["it holds no samples"]),
        (lambda path: soundfile.write(path, np.full(900, np.nan), 8000, "FLOAT"), ["900 of its 900 samples"]),
    ],
)
def test_sounds(cli: Cli, spoil: Callable[[Path], object], said: list[str]) -> None:
    own_files.sounds(Path("sounds"), 4)
    spoil(Path("sounds/tone/02.wav"))
    rejected(cli, ("gru", "sounds"), ["1 of 12 audio files", "sounds/tone/02.wav", *said, "Repair, replace or remove"])


def test_sounds_of_another_rate_or_with_two_channels_are_told(cli: Cli) -> None:
    own_files.sounds(Path("sounds"), 4)
    soundfile.write("sounds/tone/01.wav", np.random.default_rng(0).normal(0, 0.1, 4000), 16_000)
    soundfile.write("sounds/tone/02.wav", np.random.default_rng(0).normal(0, 0.1, (2000, 2)), 8000)
    answer = cli("train", "gru", "sounds", "model.hidden_dim=4", *QUIET)
    assert answer.status == 0, answer.err
    assert "Brought to 8,000 samples a second by a polyphase filter: 1 of 12 recordings, tone/01.wav" in answer.said
    assert "Channels averaged to one: 1 of 12 recordings, tone/02.wav" in answer.said


def test_folders_of_sounds(cli: Cli) -> None:
    own_files.sounds(Path("sounds"), 4)
    rejected(cli, ("textcnn", "sounds"), ["takes text data", "audio data", "gru"])
    rejected(cli, ("gru", "sounds", "forecast=x"), ["forecast=x is for series"])
    (Path("sounds") / "quiet").mkdir()
    rejected(cli, ("gru", "sounds"), ["The class folder sounds/quiet holds no audio files (.wav, .flac, .ogg, .mp3)"])
    shutil.rmtree("sounds/quiet")
    shutil.rmtree("sounds/noise")
    shutil.rmtree("sounds/sweep")
    rejected(cli, ("gru", "sounds"), ["holds one class only, tone"])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(b""), ["left/02.avi", "it is empty"]),
        (lambda path: cut_short(path, 900), ["left/02.avi", "cut short", "bytes are missing"]),
        (lambda path: path.with_suffix(".mp4").write_text("no video"), ["left/02.mp4", "not readable as a video"]),
        (lambda path: path.with_suffix(".mp4").write_bytes(b"\0\0\0\x20ftypisom" + b"\0" * 20), ["left/02.mp4"]),
        (lambda path: shutil.copy("tone.wav", path), ["left/02.avi", "it holds no images"]),
    ],
)
def test_videos(cli: Cli, spoil: Callable[[Path], object], said: list[str]) -> None:
    own_files.videos(Path("videos"), 4)
    soundfile.write("tone.wav", np.zeros(800), 8000)
    spoil(Path("videos/left/02.avi"))
    rejected(cli, ("cnn-lstm", "videos"), [*said, "Repair, replace or remove"])


def test_a_video_without_frames(cli: Cli) -> None:
    own_files.videos(Path("videos"), 4)
    for path in Path("videos/left").iterdir():
        path.unlink()
    (Path("videos/left") / "empty").mkdir()
    rejected(cli, ("cnn-lstm", "videos"), ["videos/left holds no video files"])
    rejected(cli, ("resnet18", "videos"), ["takes image data", "video data", "cnn-lstm"])


# --- graphs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("edges.csv", lambda text: text + "3,99\n", ["edges.csv, line 80, column target", "'99' is not a node"]),
        ("edges.csv", lambda text: text + "3\n", ["edges.csv, line 80", "1 cells, 2 expected"]),
        ("edges.csv", lambda text: text + "3,\n", ["edges.csv, line 80, column target", "the node is missing"]),
        ("edges.csv", lambda text: "source\n1\n", ["edges.csv has one column"]),
        ("edges.csv", None, ["graph has nodes.csv and no edges.csv", "a row for each edge"]),
        ("nodes.csv", lambda text: text + "3,Officer\n", ["nodes.csv, line 36, column id", "name of line 5"]),
        ("nodes.csv", lambda text: text + ",Officer\n", ["nodes.csv, line 36, column id", "no name"]),
        ("nodes.csv", lambda text: "id\n" + "".join(f"{i}\n" for i in range(34)), ["no column 'club'", "id"]),
        ("nodes.csv", None, ["graph has edges.csv and no nodes.csv", "a row for each node"]),
    ],
)  # fmt: skip
def test_graphs(cli: Cli, name: str, change: Callable[[str], str] | None, said: list[str]) -> None:
    karate(Path("graph"))
    path = Path("graph", name)
    text = path.read_text()
    path.unlink()
    if change is not None:
        path.write_text(change(text))
    rejected(cli, ("gcn", "graph", "target=club"), said)


def test_a_graph_without_a_target(cli: Cli) -> None:
    karate(Path("graph"))
    rejected(cli, ("gcn", "graph"), ["Which column of nodes.csv", "target=COLUMN", "id, club"])
    rejected(cli, ("gcn", "graph", "target=clubs"), ["no column 'clubs'", "Similar: club"])
    rejected(cli, ("gru", "graph", "target=club"), ["gru takes text, series or audio data", "graph data", "gat"])
    Path("graph/nodes.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(34)))
    rejected(cli, ("gcn", "graph"), ["nodes.csv", "no column but 'id'", "nothing to predict", "target=COLUMN"])
