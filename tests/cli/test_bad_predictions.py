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
        ("reviews", "new.txt", ["no file 'new.txt'"]),
        ("reviews", "new.tsv", ["no file 'new.tsv'"]),
        ("reviews", "visits.csv", ["text of column 'text', and visits.csv has no such column", "'time', 'visits'"]),
        ("reviews", "sounds/tone/01.wav", ["01.wav", "not text"]),
        ("reviews", "sounds", ["sounds is a folder without text files"]),
        ("tags", "reviews.tsv", ["reviews.tsv is a table", ".conll"]),
        ("tags", "sounds/tone/01.wav", ["01.wav", "not text"]),
        ("book", "new.txt", ["no file 'new.txt'"]),
        ("book", "sounds", ["sounds is a folder without text files"]),
        ("book", "", ["0 of the tokens", "at least two"]),
        ("pairs", "new.txt", ["no file 'new.txt'"]),
        ("pairs", "pairs.tsv", ["line 1 of pairs.tsv", "one source a line"]),
        ("pairs", " ", ["it is empty"]),
        ("pairs", "sounds/tone/01.wav", ["01.wav", "not text: byte 6"]),
        ("visits", "new.csv", ["no file or folder 'new.csv'"]),
        ("visits", "reviews.tsv", ["reviews.tsv has no column 'visits'", "It has: text, label"]),
        ("visits", "book.txt", ["book.txt is not a table", ".csv"]),
        ("visits", "short.csv", ["short.csv has 5 steps", "the last 16"]),
        ("sounds", "new.wav", ["no audio file 'new.wav'"]),
        ("sounds", "book.txt", ["book.txt is not an audio file", ".wav"]),
        ("sounds", "videos", ["videos is a folder without audio files"]),
        ("videos", "sounds/tone/01.wav", ["neither a video file", "nor a folder of frames"]),
        ("videos", "new.mp4", ["no video 'new.mp4'"]),
        ("graph", "new", ["no file or folder 'new'", "nodes.csv and edges.csv"]),
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
        ("tags", "other.conll", ["other.conll", "'NOUN' is not a tag", "CAPITAL"]),
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


NO_FILE, UNREADABLE, NO_OPEN, UNSUPPORTED, MISMATCH = "CUT-201", "CUT-202", "CUT-302", "CUT-205", "CUT-208"


def expect_code(cli: Cli, code: str, *words: str) -> None:
    """The command fails with this code."""
    answer = cli(*words)
    assert (answer.status, answer.err.splitlines()[-1].partition(":")[0]) == (2, code), (words, answer)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("reviews", ".tsv"),
        ("tags", ".conll"),
        ("book", ".txt"),
        ("pairs", ".tsv"),
        ("visits", ".csv"),
        ("sounds", ".wav"),
        ("videos", ".mp4"),
        ("graph", ".graphml"),
    ],
)
def test_the_same_fault_of_a_file_has_the_same_code_for_every_kind_of_data(
    run: Callable[[str], str], cli: Cli, name: str, suffix: str
) -> None:
    folder = run(name)
    Path(f"empty{suffix}").touch()
    Path("report.pdf").write_text("%PDF-1.4")
    Path("nothing").mkdir()
    model, _, *settings = DATA[name]
    expect_code(cli, NO_FILE, "train", model, f"new{suffix}", *settings)
    expect_code(cli, UNSUPPORTED, "train", model, "report.pdf", *(s for s in settings if s != "pairs=true"))
    for command in ("predict", "inspect", "evaluate"):
        expect_code(cli, NO_FILE, command, folder, f"new{suffix}")
        expect_code(cli, UNSUPPORTED, command, folder, "report.pdf")
        if not (command == "evaluate" and name in ("sounds", "videos")):  # files of theirs are in class folders
            expect_code(cli, UNREADABLE, command, folder, f"empty{suffix}")
    if name in ("reviews", "book", "sounds", "videos", "graph"):  # folders are read
        expect_code(cli, UNSUPPORTED, "predict", folder, "nothing")


@pytest.mark.parametrize(
    ("name", "text"),
    [("reviews", "text\nIt works.\n"), ("reviews", "label\ngood\n"), ("visits", "time,other\n2024-01-01,3\n")],
)
def test_a_missing_column_of_the_training_data_has_one_code(
    run: Callable[[str], str], cli: Cli, name: str, text: str
) -> None:
    Path("lacking.csv").write_text(text)
    expect_code(cli, MISMATCH, "evaluate", run(name), "lacking.csv")


@pytest.mark.parametrize(
    ("code", "commands"),
    [
        (
            NO_FILE,
            (
                "train mlp new.csv target=size",
                "check mlp new.csv target=size",
                "plan mlp new.csv target=size",
                "compare mlp new.csv target=size",
                "search mlp new.csv target=size lr=0.1,0.2",
                "prepare new.txt shards",
                "train mlp @new.toml",
                "check mlp rows.csv target=size @new.toml",
                "train mlp rows.csv target=size weights=new/",
                "check mlp rows.csv target=size weights=new.safetensors",
                "train mlp rows.csv target=kind teacher=runs/new",
                "train gru book.txt tokenizer=new.json",
                "train word2vec-cbow book.txt vectors=new.txt",
                "convert new.pth out --to cutaway --model resnet18",
                "convert new out --to cutaway",
                "course check 1 new.py",
                "evaluate RUN new.csv",
                "predict RUN new.csv",
                "inspect RUN new.csv",
                "inspect lenet5 new.png",
                "inspect runs/new",
                "evaluate runs/new",
                "predict runs/new rows.csv",
                "generate runs/new",
                "serve runs/new",
                "export runs/new out.onnx",
                "report runs/new",
                "studio runs/new",
                "prune runs/new out sparsity=0.5",
                "quantize runs/new out",
                "convert runs/new out --to huggingface",
                "train --resume runs/new",
                "compare --resume runs/new",
                "search --resume runs/new",
            ),
        ),
        (
            UNREADABLE,
            (
                "train mlp empty.csv target=size",
                "check mlp empty.csv target=size",
                "train gru empty.txt",
                "prepare empty.txt shards",
                "train seq2seq-gru empty.txt,empty.txt pairs=true",
                "train gru empty.csv forecast=size",
                "evaluate RUN empty.csv",
                "predict RUN empty.csv",
                "inspect RUN empty.csv",
                "inspect lenet5 empty.png",
                "train mlp gaps.csv target=size",
                "evaluate RUN gaps.csv",
            ),
        ),
        (
            NO_OPEN,
            (
                "train mlp @folder rows.csv",
                "train mlp rows.csv target=size weights=/dev/null",
                "convert /dev/null out --to cutaway --model resnet18",
                "train gru book.txt tokenizer=/dev/null",
                "evaluate RUN /dev/null",
                "predict RUN /dev/null",
                "inspect RUN /dev/null",
            ),
        ),
        (
            "CUT-203",
            (
                "train mlp rows.csv target=new",
                "check mlp rows.csv target=new",
                "plan mlp rows.csv target=new",
                "compare mlp rows.csv target=new",
                "search mlp rows.csv target=new lr=0.1,0.2",
                "train mlp rows.csv target=size group=new",
                "train mlp rows.csv target=size ignore=new",
                "train gru rows.csv target=size text=new",
                "train gine rows.csv target=size smiles=new",
            ),
        ),
        (MISMATCH, ("evaluate RUN other.csv", "predict RUN other.csv", "inspect RUN other.csv")),
        (
            "CUT-102",
            (
                "train mlp rows.csv target=size epohs=2",
                "check mlp rows.csv target=size epohs=2",
                "plan mlp rows.csv target=size epohs=2",
                "compare mlp rows.csv target=size epohs=2",
                "search mlp rows.csv target=size epohs=2",
                "train mlp rows.csv target=size model.epohs=2",
                "train mlp rows.csv model=mlp",
                "compare models=mlp,linear rows.csv target=size",
                "inspect RUN epohs=2",
                "show mlp epohs=2",
                "quantize RUN out epohs=2",
                "prune RUN out sparsity=0.5 epohs=2",
                "evaluate RUN --epohs 2",
                "predict RUN rows.csv --epohs 2",
                "serve RUN --epohs 2",
                "export RUN out.onnx --epohs 2",
                "--print-completion bsh",
            ),
        ),
        (
            "CUT-101",
            (
                "train mlp rows.csv target=size lr=-1",
                "check mlp rows.csv target=size lr=-1",
                "plan mlp rows.csv target=size lr=-1",
                "compare mlp rows.csv target=size lr=-1",
                "search mlp rows.csv target=size lr=-1,0.1",
                "train mlp rows.csv target=size model.hidden_dims=-1",
                "show mlp hidden_dims=-1",
                "train mlp rows.csv target=size model.activation=new",
                "train gru book.txt tokenizer=new",
                "prune RUN out sparsity=3",
                "quantize RUN out bits=3",
                "evaluate RUN --samples x",
                "evaluate RUN --attack new",
                "serve RUN --port x",
                "serve RUN --port 99999999",
                "export RUN out.zip",
                "convert RUN out --to new",
                "inspect RUN example=-1",
            ),
        ),
        (
            "CUT-103",
            (
                "train --resume",
                "train mlp",
                "train",
                "train mlp rows.csv",
                "check mlp rows.csv",
                "compare",
                "search mlp",
                "evaluate",
                "predict RUN",
                "serve",
                "serve RUN --port",
                "export RUN",
                "inspect",
                "convert RUN",
                "prune RUN",
                "--print-completion",
            ),
        ),
        (
            "CUT-304",
            tuple(
                command.replace("NONE", place)
                for place in ("folder", "rows.csv")
                for command in (
                    "evaluate NONE",
                    "predict NONE rows.csv",
                    "generate NONE",
                    "serve NONE",
                    "export NONE out.onnx",
                    "report NONE",
                    "studio NONE",
                    "inspect NONE",
                    "prune NONE out sparsity=0.5",
                    "quantize NONE out",
                    "train --resume NONE",
                    "compare --resume NONE",
                    "search --resume NONE",
                    "train mlp rows.csv target=kind teacher=NONE",
                )
            ),
        ),
    ],
)
def test_the_same_fault_has_the_same_code_in_every_command(
    shelf: Path, cli: Cli, code: str, commands: tuple[str, ...]
) -> None:
    rows = [f"{i},{i % 7},{2 * i},{'xy'[i % 2]}" for i in range(60)]
    Path("rows.csv").write_text("\n".join(["a,b,size,kind", *rows]))
    Path("gaps.csv").write_text("\n".join(["a,b,size,kind", "1,2,,x", *rows]))
    Path("other.csv").write_text("\n".join(["a,size", "1,2"]))
    for name in ("empty.csv", "empty.txt", "empty.png"):
        Path(name).touch()
    Path("folder").mkdir()
    Path("book.txt").symlink_to(shelf / "book.txt")
    kept = shelf / "kept" / "rows"
    if not kept.exists():
        trained = cli("train", "mlp", "rows.csv", "target=size", "epochs=1", "tensorboard=false", "--out", str(kept))
        assert trained.status == 0, trained.err
    found = {}
    for command in commands:
        answer = cli(*command.replace("RUN", str(kept)).split())
        found[command] = answer.err.splitlines()[-1].partition(":")[0] if answer.status == 2 else answer.err
    assert {command: other for command, other in found.items() if other != code} == {}


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
    expect_rejection(cli("generate", "nowhere"), "There is no run 'nowhere'")


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
    left_out = "note: missing=drop left out 1 of 3 series of bad.csv (33.3%): shop south: bad.csv (shop south), line 77"
    assert left_out in answer.err
    assert "2 predictions in bad-predictions.csv" in answer.said
    assert cli("predict", "trained", "two.csv", "--out", "two-predictions.csv").status == 0
    bad, two = (Path(f"{name}-predictions.csv").read_text() for name in ("bad", "two"))
    assert bad == two.replace("two.csv", "bad.csv")
    evaluated = cli("evaluate", "trained", "bad.csv", "--json")
    assert evaluated.status == 0, evaluated.err
    assert "note: missing=drop left out 1 of 3 series of bad.csv (33.3%): shop south: " in evaluated.err
    assert json.loads(evaluated.out) == json.loads(cli("evaluate", "trained", "two.csv", "--json").out)
