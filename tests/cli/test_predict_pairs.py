"""Translating files: a line for every line, in its order, whatever stands in it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cutaway.apps.cli.runs import to_single_line
from cutaway.core.errors import SettingError, printable
from cutaway.runs.run import Run
from cutaway.tasks.rouge import NAMES as ROUGE

from .conftest import Answer
from .test_bad_input import expect_rejection

Cli = Callable[..., Answer]

NUMBERS = ["null", "eins", "zwei", "drei", "vier"], ["zero", "one", "two", "three", "four"]
TINY = {
    "seq2seq-gru": ("model.hidden_dim=8", "model.embedding_dim=8", "model.attention_dim=8", "model.readout_dim=8"),
    "transformer-tiny": ("model.dim=16", "model.layers=1", "model.heads=2", "model.ffn_dim=16", "batch_tokens=400"),
}
LINES = ["eins zwei", "", "drei", "   ", "vier null", "niemals"]


def sentences(folder: Path) -> tuple[str, ...]:
    """Sentences of numbers in two languages, in two files, and how they are read."""
    for name, words in zip(("de.txt", "en.txt"), NUMBERS):
        lines = [f"{words[i % 5]} {words[i // 5 % 5]} {words[i // 25 % 5]}.\n" for i in range(125)]
        (folder / name).write_text("".join(lines))
    return (f"{folder}/de.txt,{folder}/en.txt", "pairs=true")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that learned to translate numbers, a little."""
    from cutaway.apps.cli import main

    folder = tmp_path_factory.mktemp("translators")
    for model, settings in TINY.items():
        words = (*sentences(folder), *settings, "epochs=2", "tensorboard=false", "--out", str(folder / model))
        assert main(["train", model, *words]) == 0
    return folder


@pytest.fixture(params=list(TINY))
def run(request: pytest.FixtureRequest, trained: Path) -> str:
    return str(trained / request.param)


def test_no_line_is_lost_or_moved(cli: Cli, run: str) -> None:
    Path("new.txt").write_text("\n".join(LINES))
    answer = cli("predict", run, "new.txt", "--out", "said.txt")
    assert answer.status == 0, answer.err
    assert "6 predictions in said.txt" in answer.said
    assert "2 of 6 lines are empty: so are the answers to them." in answer.said
    text = Path("said.txt").read_text()
    said = text.removesuffix("\n").split("\n")
    assert text.endswith("\n")
    assert [not line for line in said] == [not line.strip() for line in LINES]
    # One by one they are the same: neither padding nor the order in which they were read changes a line.
    alone = [Run(run).predict([line])[0]["target"] if line.strip() else "" for line in LINES]
    assert said == alone


def test_a_table_has_the_same_rows(cli: Cli, run: str) -> None:
    Path("new.txt").write_text("\n".join(LINES) + "\n")
    assert cli("predict", run, "new.txt", "--out", "said.txt").status == 0
    assert cli("predict", run, "new.txt", "--out", "said.csv").status == 0
    with Path("said.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["input"] for row in rows] == [f"line {i} of new.txt" for i in range(1, 7)]
    said = Path("said.txt").read_text().split("\n")[:-1]
    assert [row["target"] for row in rows] == [printable(line) for line in said]  # nothing steers a terminal there
    printed = json.loads(cli("predict", run, "new.txt", "--json").out)
    assert [row["target"] for row in printed] == said


def test_what_is_drawn_is_the_same_by_the_same_seed_alone(cli: Cli, run: str) -> None:
    words = ("--temperature", "1", "--top-p", "0.95", "--samples", "3", "--seed", "4", "--json")
    found = json.loads(cli("generate", run, "--prompt", "eins zwei", *words).out)["samples"]
    torch.rand(5)
    Path("new.txt").write_text("drei\n\neins zwei\n")
    drawn = Run(run).generate(["new.txt"], 3, seed=4, temperature=1.0, top_p=0.95)
    assert len(set(found)) == 3
    assert drawn[2] == found
    assert drawn[1] == [""] * 3
    assert Run(run).generate(["eins zwei"], seed=5, temperature=1.0, top_p=0.95) == [found[1:2]]
    likeliest = cli("generate", run, "--prompt", "eins zwei").out
    assert cli("generate", run, "--prompt", "eins zwei", "--temperature", "0").out == likeliest
    with pytest.raises(SettingError, match="top_k=-1"):
        Run(run).generate(["drei"], top_k=-1)


def test_beams_are_asked_for(cli: Cli, run: str) -> None:
    Path("new.txt").write_text("\n".join(LINES) + "\n")
    greedy, one = (cli("predict", run, "new.txt", *more) for more in ((), ("--num-beams", "1")))
    assert greedy.out == one.out
    assert cli("predict", run, "new.txt", "--num-beams", "3", "--length-penalty", "0").status == 0
    expect_rejection(cli("predict", run, "new.txt", "--num-beams", "0"), "num_beams=0", "at least 1")
    figures = [json.loads(cli("evaluate", run, "--json", *more).out) for more in ((), ("--num-beams", "3"))]
    assert set(figures[0]) == set(figures[1]) == {"loss", "bleu", *ROUGE, "token_error", "sequence_error"}
    assert figures[0]["loss"] == figures[1]["loss"]
    assert all(f["bleu"]["low"] <= f["bleu"]["value"] <= f["bleu"]["high"] for f in figures)


def test_the_beams_of_the_settings_are_those_of_the_test(cli: Cli, trained: Path) -> None:
    beams = ("num_beams=3", "length_penalty=1")
    words = (*TINY["transformer-tiny"], "epochs=1", "tensorboard=false", *beams, "--out", "r")
    assert cli("train", "transformer-tiny", *sentences(trained), *words).status == 0
    document = json.loads(Path("r/evaluation.json").read_text())
    assert document["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    same = ("--num-beams", "3", "--length-penalty", "1")
    asked = [json.loads(cli("evaluate", "r", "--json", *more).out) for more in ((), same)]
    assert asked[0] == asked[1] == document["metrics"]
    assert "BLEU was computed by sacrebleu: nrefs:1" in Path("r/report.html").read_text()


def test_a_prompt_is_one_line(cli: Cli, run: str) -> None:
    assert cli("generate", run, "--prompt", "eins zwei").out.count("\n") == 1
    expect_rejection(cli("predict", run, ""), "it is empty")


def test_a_source_that_the_model_cannot_read_is_named(cli: Cli, trained: Path) -> None:
    settings = (
        "model.dim=8",
        "model.layers=1",
        "model.heads=2",
        "model.ffn_dim=8",
        "model.context_length=40",
        "epochs=1",
    )
    answer = cli("train", "bart-base", *sentences(trained), *settings, "tensorboard=false", "--out", "r")
    assert answer.status == 0, answer.err
    context = json.loads(Path("r/model/config.json").read_text())["config"]["context_length"]
    Path("new.txt").write_text("eins\n" + "eins zwei " * context + "\n")
    said = cli("predict", "r", "new.txt", "--out", "said.txt")
    expect_rejection(said, f"at most {context:,} tokens", "line 2 of new.txt", "several pieces")
    assert not Path("said.txt").exists()


def test_what_does_not_go_together_is_rejected(cli: Cli, trained: Path) -> None:
    gru = str(trained / "seq2seq-gru")
    assert cli("train", "mlp", "iris", "epochs=1", "tensorboard=false", "--out", "iris").status == 0
    expect_rejection(
        cli("predict", "iris", "iris.csv", "--out", "said.txt"), "said.txt", ".txt is only for sequence pairs", ".csv"
    )
    expect_rejection(cli("evaluate", "iris", "--num-beams", "2"), "Invalid num_beams or length_penalty")
    Path("p.tsv").write_text("".join(f"{i}\t{'abcde'[i % 5]} {'fgh'[i % 3]}\n" for i in range(60)))
    words = ("seq2seq-gru", "p.tsv", "pairs=true", "joint_vocab=true")
    expect_rejection(cli("train", *words), "Invalid joint_vocab=true", "tokenized differently", "Add tokenizer=bpe")
    shutil.copy(trained / "de.txt", "a.txt")
    Path("b.txt").write_text("one\n")
    expect_rejection(cli("evaluate", gru, "a.txt,b.txt"), "a.txt has 125 lines", "b.txt has 1")


def test_line_ends_in_an_answer_are_blanks() -> None:
    assert to_single_line({"input": "x", "target": "a\nb\r\nc\u2028d"}) == "a b c d"
    assert to_single_line({"input": "x", "target": ""}) == ""
