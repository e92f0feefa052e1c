"""Words, pairs, series, sound, video and graphs of one's own, from the first look at the files to the last figure.

Every family is trained on what own_files.py writes, by the words that a person types. How well it learns is not
asked here: that every command answers, of every kind of data, with what belongs to it.
"""

from __future__ import annotations

import csv
import datetime
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx
import pytest
from PIL import Image

from . import own_files
from .conftest import Answer

Cli = Callable[..., Answer]
Row = dict[str, Any]

SMALL = ("epochs=1", "tensorboard=false", "--out", "r")
ACCURACY = {"accuracy", "balanced_accuracy", "macro_f1", "calibration_error", "loss"}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what own_files.py writes."""
    folder = tmp_path_factory.mktemp("own")
    own_files.write(folder)
    return folder


@pytest.fixture
def own(cli: Cli, written: Path) -> Cli:
    """The command line, in a folder where all of that stands."""
    for path in written.iterdir():
        Path(path.name).symlink_to(path)
    return cli


@dataclass(frozen=True)
class Kind:
    """One kind of data: how it is typed, what is measured, and what is asked of the model afterwards."""

    data: tuple[str, ...]  # the data, and its settings
    said: str  # what `check` calls it: kind and task
    metrics: set[str]
    new: tuple[str, ...]  # what is predicted
    rows: int  # for how many examples
    right: Callable[[Row], bool]  # whether a row is an answer


def of_classes(column: str, *names: str) -> Callable[[Row], bool]:
    """Whether a row is one of these classes, with a probability for each of them."""

    def right(row: Row) -> bool:
        fractions = [row[f"probability {name}"] for name in names]
        return (
            row[column] in names
            and row["probability"] == max(fractions)
            and math.isclose(sum(fractions), 1, rel_tol=1e-4)
        )

    return right


def is_tagged(row: Row) -> bool:
    tags: list[str] = row["tag"].split()
    return len(tags) == len(row["input"].split()) and set(tags) <= {"CAPITAL", "WORD", "DIGIT", "PUNCT"}


def has_loss(row: Row) -> bool:
    return math.isclose(row["perplexity"], math.exp(row["loss"]), rel_tol=1e-4) and row["loss"] > 0


def is_forecast(row: Row) -> bool:
    steps = [row[f"visits +{h}"] for h in range(1, 7)]
    return len(row) == 1 + len(steps) and all(map(math.isfinite, steps)) and row["input"].endswith("2024-03-01 00:00")


REVIEWS = Kind(
    ("reviews.tsv", "text=text", "target=label", "max_samples=100"),
    "text, classification",
    ACCURACY,
    ("This lamp is a joy to use.", "☃", ""),
    3,
    of_classes("label", "good", "bad"),
)
TAGGED = Kind(
    ("tagged.conll",), "text, tagging", ACCURACY - {"calibration_error"}, ("The cat sat on 3 mats .",), 1, is_tagged
)
BOOK = Kind(
    ("book.txt", "max_samples=40", "val=0.05", "test=0.05"),
    "text, language modelling",
    {"loss", "perplexity", "accuracy", "bits_per_token"},
    ("An assignment evaluates the expression list.",),
    1,
    has_loss,
)
PAIRS = Kind(
    ("pairs.tsv", "pairs=true", "max_samples=200"),
    "seq2seq, sequence-to-sequence",
    {"loss", "token_error", "sequence_error"},
    ("42", "7"),
    2,
    lambda row: set(row["target"].split()) <= every_word_of_a_number(),
)
VISITS = Kind(
    ("visits.csv", "forecast=visits", "known_future=sale", "horizon=6", "max_samples=200"),
    "series, forecasting",
    {"rmse", "mae", "loss"},
    ("ahead.csv",),
    1,
    is_forecast,
)
SOUNDS = Kind(
    ("sounds", "n_mels=16"),
    "audio, classification",
    ACCURACY,
    ("sounds/tone/03.wav", "sounds/noise"),
    21,
    of_classes("class", "noise", "sweep", "tone"),
)
SPEECH = Kind(
    ("spelled", "n_mels=16"),
    "audio, speech recognition",
    {"loss", "word_error", "character_error", "sequence_error"},
    ("spelled/003.wav", "spelled"),
    41,
    lambda row: set(row["transcript"]) <= set("0123456789 ") and 0 <= row["probability"] <= 1,
)
VIDEOS = Kind(
    ("videos", "frames=6"),
    "video, classification",
    ACCURACY,
    ("videos/left/03.avi", "videos/right"),
    17,
    of_classes("class", "left", "right"),
)
GRAPH = Kind(
    ("graph", "target=club"), "graph, classification", ACCURACY, ("graph",), 34, of_classes("club", "Mr. Hi", "Officer")
)
WORDS = Kind(
    ("book.txt", "min_count=3"),
    "text, word vectors",
    {"loss"},
    ("class", "object"),
    2,
    lambda row: len(row["nearest"].split(", ")) == 10 and row["input"] not in row["nearest"].split(),
)
RECURRENT = ("model.hidden_dim=8",)

CASES = {
    "textcnn": (REVIEWS, ("model.dim=8", "model.filters=4")),
    "dcnn": (REVIEWS, ("model.dim=8", "model.feature_maps=2,2")),
    "collobert-sentence": (REVIEWS, ("model.dim=8", "model.hidden_dim=8", "model.second=8")),
    "rnn reviews": (REVIEWS, RECURRENT),
    "lstm reviews": (REVIEWS, (*RECURRENT, "model.bidirectional=true", "model.layers=2", "model.pooling=max")),
    "collobert-window": (TAGGED, ("model.dim=8", "model.hidden_dim=8")),
    "gru tags": (TAGGED, (*RECURRENT, "model.bidirectional=true")),
    "lstm book": (BOOK, (*RECURRENT, "model.tie_weights=true")),
    "gru book": (BOOK, (*RECURRENT, "tokenizer=words", "min_count=2", "lower=true")),
    "rnn book": (BOOK, (*RECURRENT, "tokenizer=bpe", "vocab_size=300", "stateful=false")),
    "seq2seq-gru": (
        PAIRS,
        ("model.hidden_dim=8", "model.embedding_dim=8", "model.attention_dim=8", "model.readout_dim=8"),
    ),
    "lstm visits": (VISITS, RECURRENT),
    "gru visits": (VISITS, (*RECURRENT, "model.relative=true")),
    "gru sounds": (SOUNDS, RECURRENT),
    "ctc-conv-gru": (SPEECH, ("model.channels=8,8", "model.hidden_dim=8", "num_beams=2")),
    "transformer-asr": (
        SPEECH,
        ("model.dim=8", "model.heads=2", "model.layers=1", "model.decoder_layers=1", "num_beams=2"),
    ),
    "cnn-lstm": (VIDEOS, ("model.channels=2,4", "model.hidden_dim=8")),
    "gcn": (GRAPH, ()),
    "gat": (GRAPH, ("inductive=true",)),
    "gin": (GRAPH, ("model.layers=2",)),
    "graphconv": (GRAPH, ("num_neighbors=3,3,3", "batch_size=8")),
    "word2vec-skipgram": (WORDS, ("model.dim=8",)),
}


def every_word_of_a_number() -> set[str]:
    return {word for number in range(101) for word in own_files.name(number).split()}


def write_ahead() -> None:
    """ahead.csv: visits.csv with a day after it of which only the sale is known."""
    after = datetime.datetime(2024, 3, 1)
    rows = [f"{(after + datetime.timedelta(hours=h)).isoformat(' ', 'minutes')},,,{h % 2}\n" for h in range(24)]
    Path("ahead.csv").write_text(Path("visits.csv").read_text() + "".join(rows))


@pytest.mark.parametrize("name", CASES)
def test_from_training_to_prediction(own: Cli, name: str) -> None:
    kind, settings = CASES[name]
    write_ahead()
    answer = own("train", name.split()[0], *kind.data, *settings, *SMALL)
    assert answer.status == 0, answer.err
    assert "1 epoch in" in answer.out
    assert "r/report.html" in answer.out

    evaluation = json.loads(Path("r/evaluation.json").read_text())
    assert kind.metrics <= set(evaluation["metrics"])
    assert evaluation["split"] == ("val" if kind is WORDS else "test")
    for metric in evaluation["metrics"].values():
        if metric.get("note"):
            assert metric["note"].startswith("no interval: ")
            assert metric["low"] is metric["high"] is None
        else:
            assert metric["low"] <= metric["value"] <= metric["high"]
    again = own("evaluate", "r", "--json")
    assert again.status == 0, again.err
    assert json.loads(again.out) == evaluation["metrics"]

    answer = own("predict", "r", *kind.new, "--json")
    assert answer.status == 0, answer.err
    rows = json.loads(answer.out)
    assert len(rows) == kind.rows
    assert all(map(kind.right, rows)), rows
    printed = own("predict", "r", *kind.new)
    assert printed.status == 0, printed.err
    assert [line for line in printed.out.splitlines() if line.startswith(rows[0]["input"])]

    Path("r/report.html").unlink()
    assert own("report", "r").out == "r/report.html\n"
    assert Path("r/report.html").stat().st_size > 10_000


FIRST = {kind.said: name for name, (kind, _) in reversed(CASES.items())}  # one model for each kind


@pytest.mark.parametrize("said", FIRST)
def test_check_describes_the_data_and_writes_nothing(own: Cli, said: str) -> None:
    kind, settings = CASES[FIRST[said]]
    words = ("check", FIRST[said].split()[0], *kind.data, *settings)
    before = set(Path().rglob("*"))
    answer = own(*words)
    assert answer.status == 0, answer.err
    assert f"{kind.data[0]}: {said}," in answer.out
    # The tagged sentences are real, and some stand there twice; reviews are made of few words, and some are alike.
    copies = ("text, tagging", "text, classification")
    found = "remove the copies" if said in copies else "No problems found in the data."
    assert found in answer.out.split("\n", 1)[1]
    document = json.loads(own(*words, "--json").out)
    assert f"{document['data']['kind']}, {document['task']}" == said
    assert document["layers"]
    assert set(Path().rglob("*")) == before


@pytest.mark.parametrize("said", FIRST)
def test_a_run_is_resumed(own: Cli, said: str) -> None:
    kind, settings = CASES[FIRST[said]]
    model = FIRST[said].split()[0]
    assert own("train", model, *kind.data, *settings, *SMALL).status == 0
    answer = own("train", "--resume", "r", "epochs=2")
    assert answer.status == 0, answer.err
    assert json.loads(Path("r/run.json").read_text())["epochs_done"] == 2


def train(cli: Cli, name: str) -> None:
    """Leave the run r."""
    kind, settings = CASES[name]
    assert cli("train", name.split()[0], *kind.data, *settings, *SMALL).status == 0


def test_a_language_model_writes_text(own: Cli) -> None:
    train(own, "lstm book")
    known = set(Path("book.txt").read_text(encoding="utf-8"))
    answer = own("generate", "r", "--prompt", "The ", "--count", "40", "--temperature", "0.5", "--top-k", "5")
    assert answer.out.startswith("The ")
    assert len(answer.out) == len("The ") + 40 + 1
    assert set(answer.out) <= known
    samples = json.loads(own("generate", "r", "--samples", "2", "--count", "30", "--json").out)["samples"]
    assert [len(text) for text in samples] == [30, 30]
    assert samples[0] != samples[1]
    again = own("generate", "r", "--count", "30", "--seed", "0").out
    assert again.strip("\n") == samples[0].strip("\n")
    assert "unknown to the model: '☃'" in own("generate", "r", "--prompt", "a ☃", "--count", "1").said


def test_what_a_sequence_becomes_is_written(own: Cli) -> None:
    train(own, "seq2seq-gru")
    answer = own("generate", "r", "--prompt", "42")
    assert answer.status == 0, answer.err
    assert set(answer.out.split()) <= every_word_of_a_number()
    (text,) = json.loads(own("generate", "r", "--prompt", "42", "--num-beams", "3", "--json").out)["samples"]
    assert set(text.split()) <= every_word_of_a_number()


def test_predictions_are_printed_for_people(own: Cli) -> None:
    train(own, "textcnn")
    lines = own("predict", "r", "It broke at once.", "A joy.").out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["It broke at once.", "A joy."]
    assert all(line.endswith(" %") for line in lines)
    answer = own("predict", "r", "reviews.tsv", "--out", "p.csv")
    assert "300 predictions in p.csv" in answer.err
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert [row["input"] for row in rows[:2]] == ["line 2 of reviews.tsv", "line 3 of reviews.tsv"]
    assert {row["label"] for row in rows} <= {"good", "bad"}


def test_every_step_of_a_forecast_is_printed(own: Cli) -> None:
    train(own, "lstm visits")
    write_ahead()
    first, *steps = own("predict", "r", "ahead.csv").out.splitlines()
    assert first == "ahead.csv, from 2024-03-01 00:00"
    assert [line.split()[:2] for line in steps] == [["visits", f"+{h}"] for h in range(1, 7)]


# --- other forms in which the same comes --------------------------------------------------------------------------


def finished(cli: Cli, *words: str) -> Row:
    """What evaluation says of a run on these words."""
    answer = cli("train", *words, *SMALL)
    assert answer.status == 0, answer.err
    found: Row = json.loads(Path("r/evaluation.json").read_text())
    return found


def test_texts_in_class_folders(own: Cli) -> None:
    _, *lines = Path("reviews.tsv").read_text().splitlines()
    for i, line in enumerate(lines[:60]):
        text, label = line.split("\t")
        place = Path("mail", "test" if i >= 48 else "train", label, f"{i}.txt")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    evaluation = finished(own, "gru", "mail", "model.hidden_dim=8")
    assert evaluation["count"] == 12
    one, *_, last = sorted(Path("mail/test/bad").iterdir())
    rows = json.loads(own("predict", "r", str(one), "mail/test/bad", "--json").out)
    assert [row["input"] for row in (rows[0], rows[1], rows[-1])] == [str(one), str(one), str(last)]
    assert own("evaluate", "r", "mail/test").status == 0


def test_two_files_line_by_line(own: Cli) -> None:
    _, *lines = Path("reviews.tsv").read_text().splitlines()
    texts, labels = zip(*(line.split("\t") for line in lines[:60]))
    Path("texts.txt").write_text("\n".join(texts))
    Path("labels.txt").write_text("\n".join(labels))
    assert finished(own, "textcnn", "texts.txt", "target=labels.txt", "model.dim=4")["metrics"].keys() == ACCURACY
    assert own("evaluate", "r", "texts.txt,labels.txt").status == 0
    Path("tags.txt").write_text("\n".join(" ".join("AB"[len(w) % 2] for w in text.split()) for text in texts))
    words = ("collobert-window", "texts.txt", "target=tags.txt", "model.dim=4", *SMALL[:2], "--out", "tags")
    assert own("train", *words).status == 0
    assert len(json.loads(own("predict", "tags", "one two three", "--json").out)[0]["tag"].split()) == 3
    Path("numbers.txt").write_text("\n".join(map(str, range(100))))
    Path("names.txt").write_text("\n".join(map(own_files.name, range(100))))
    words = ("seq2seq-gru", "numbers.txt,names.txt", "pairs=true", *CASES["seq2seq-gru"][1], *SMALL[:2], "--out", "two")
    assert own("train", *words).status == 0
    assert own("evaluate", "two").status == 0


def test_texts_that_say_their_parts(own: Cli) -> None:
    whole = Path("book.txt").read_text(encoding="utf-8")
    Path("books").mkdir()
    for name, begin in (("train", 0), ("valid", 5000), ("test", 6000)):
        Path(f"books/{name}.txt").write_text(whole[begin : begin + 5000 if name == "train" else begin + 1000])
    assert finished(own, "rnn", "books", "model.hidden_dim=8")["split"] == "test"
    assert own("evaluate", "r", "books/test.txt").status == 0
    assert json.loads(own("predict", "r", "books/test.txt", "--json").out)[0]["loss"] > 0


def test_videos_as_folders_of_frames(own: Cli) -> None:
    for way in ("left", "right"):
        for i in range(8):
            folder = Path("frames", way, str(i))
            folder.mkdir(parents=True)
            for t in range(4):
                place = 4 * t if way == "right" else 12 - 4 * t
                picture = Image.new("L", (24, 24))
                picture.paste(255, (place, i, place + 6, i + 6))
                picture.save(folder / f"{t}.png")
    evaluation = finished(own, "cnn-lstm", "frames", "model.channels=2,4", "model.hidden_dim=8")
    assert evaluation["metrics"].keys() == ACCURACY
    assert len(json.loads(own("predict", "r", "frames/left/3", "frames/right", "--json").out)) == 1 + 8


def test_whole_graphs_and_graphml(own: Cli) -> None:
    nodes, edges = ["id,graph,charge,shape"], ["source,target"]
    for g in range(24):
        size = 3 + g % 3
        nodes += [f"{g}-{i},{g},{i / 2},{'ring' if g % 2 else 'line'}" for i in range(size)]
        edges += [f"{g}-{i},{g}-{(i + 1) % size}" for i in range(size - 1 + g % 2)]
    Path("many").mkdir()
    Path("many/nodes.csv").write_text("\n".join(nodes))
    Path("many/edges.csv").write_text("\n".join(edges))
    assert finished(own, "graphconv", "many", "target=shape", "model.hidden_dim=8")["count"] == 3
    assert len(json.loads(own("predict", "r", "many", "--json").out)) == 24
    networkx.write_graphml(networkx.karate_club_graph(), "club.graphml")
    answer = own("train", "gcn", "club.graphml", "target=club", *SMALL[:2], "--out", "club")
    assert answer.status == 0, answer.err
    assert len(json.loads(own("predict", "club", "club.graphml", "--json").out)) == 34
