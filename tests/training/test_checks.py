"""A setting changes something, or is rejected by name: every setting of training beside every optimizer and schedule,
and those of data on each kind of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.apps.cli import main
from cutaway.core.config import build
from cutaway.core.errors import SettingError
from cutaway.models.registry import preset
from cutaway.training.config import OPTIMIZERS, SCHEDULES, TrainSettings
from cutaway.training.optim import build_optimizers, lr_factor
from cutaway.training.setup import setup_training

OTHER = {"momentum": 0.5, "weight_decay": 0.3, "lr": 0.02}
OF_SCHEDULES = {"warmup": 0.3, "gamma": 0.7, "milestones": (0.2, 0.4), "decay": 0.6}


def rejected(model: str, source: object, given: dict[str, Any]) -> str:
    """What is said of these settings; empty where they are taken."""
    try:
        setup_training(model, source, given)
    except SettingError as error:
        return str(error)
    return ""


def stepped(given: dict[str, Any]) -> list[torch.Tensor]:
    """The weights of a small network after three updates."""
    torch.manual_seed(0)
    found = preset("mlp")
    model = found.build(
        found.configure(
            settings={"in_features": 3, "hidden_dims": (8, 8), "activation": "tanh", "num_classes": 2, "dropout": 0.0}
        )
    )
    x = torch.randn(32, 3)
    optimizers = build_optimizers(model, build(TrainSettings, given))
    for _ in range(3):
        model.zero_grad()
        model(x).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_setting_of_optimizers_changes_the_weights_or_is_rejected(optimizer: str) -> None:
    plain = stepped({"optimizer": optimizer})
    for key, value in OTHER.items():
        given = {"optimizer": optimizer, key: value}
        moved = any(not torch.equal(a, b) for a, b in zip(plain, stepped(given)))
        said = rejected("mlp", "iris", given)
        assert moved == (not said), (key, said)
        assert moved or said.startswith(f"{key}={value} would change nothing: it is for optimizer=momentum, nesterov")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_setting_of_schedules_changes_the_rate_or_is_rejected(schedule: str) -> None:
    def rates(given: dict[str, Any]) -> list[float]:
        settings = build(TrainSettings, {"schedule": schedule, **given})
        return [lr_factor(settings, t / 40, 40) for t in range(41)]

    for key, value in OF_SCHEDULES.items():
        moved = rates({key: value}) != rates({})
        said = rejected("mlp", "iris", {"schedule": schedule, key: value})
        assert moved == (not said), (key, said)
        assert moved or "would change nothing: it is for schedule=" in said


def test_what_is_the_default_may_be_said_and_what_a_card_says_is_not_held_against_anybody() -> None:
    assert not rejected("mlp", "iris", {"momentum": 0.9, "gamma": "0.1", "folds": 10})
    for name in ("airbench94", "resnet20", "word2vec-skipgram"):
        card = preset(name).card.settings
        assert card  # which may name settings of an optimizer that the person changes
    assert not rejected("resnet20", "digits", {"optimizer": "adamw", "max_samples": 20})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book, a series, a table of values and a graph, as small as they can be."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "book.txt").write_text("the cat sat on the mat and the dog ran on. " * 60)
    rows = "".join(f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00,{(i * 7) % 13}.5\n" for i in range(24 * 20))
    (folder / "visits.csv").write_text("time,visits\n" + rows)
    (folder / "prices.csv").write_text(
        "size,price\n" + "".join(f"{(i * 7) % 23}.5,{(i * 11) % 97}.25\n" for i in range(80))
    )
    (folder / "pairs.tsv").write_text("".join(f"{i} {i % 7} cat\t{i} {i % 7} dog\n" for i in range(40)))
    (folder / "graph").mkdir()
    nodes = "".join(f"{i},{i % 3}.5,{'ab'[i % 2]}\n" for i in range(30))
    (folder / "graph" / "nodes.csv").write_text(f"id,x,club\n{nodes}")
    edges = "".join(f"{i},{(i + step) % 30}\n" for i in range(30) for step in (1, 2))
    (folder / "graph" / "edges.csv").write_text(f"source,target\n{edges}")
    return folder


TINY = {"model.layers": 1, "model.dim": 8, "model.heads": 1, "length": 8, "tokenizer": "characters"}
IN_VAIN: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("gpt2", "book.txt", TINY, {"fold": 2}, "split by its position in the text"),
    ("gpt2", "book.txt", TINY, {"split_seed": 2}, "split by its position in the text"),
    ("gpt2", "book.txt", TINY, {"window": 3}, "for word vectors"),
    ("gpt2", "book.txt", TINY, {"subsample": 0.1}, "for word vectors"),
    ("gpt2", "book.txt", TINY, {"class_weights": "balanced"}, "next token has no classes"),
    ("gpt2", "book.txt", TINY, {"freeze": "head*"}, "shares those of another layer"),
    ("gpt2", "book.txt", TINY, {"channels_last": True}, "no convolutions"),
    ("lstm", "visits.csv", {"forecast": "visits", "horizon": 2}, {"fold": 2}, "split by its time"),
    (
        "lstm",
        "visits.csv",
        {"forecast": "visits", "horizon": 2},
        {"class_weights": "balanced"},
        "has no classes",
    ),
    ("mlp", "prices.csv", {"target": "price"}, {"class_weights": "balanced"}, "price has no classes"),
    ("mlp", "prices.csv", {"target": "price", "val": 0}, {"patience": 3}, "no validation split"),
    ("mlp", "prices.csv", {"target": "price"}, {"folds": 5}, "Give fold too"),
    ("linear", "prices.csv", {"target": "price"}, {"layer_decay": 0.5}, "no layers before its head"),
    ("gcn", "graph", {"target": "club"}, {"accumulate": 4}, "the whole graph is one step"),
    ("gcn", "graph", {"target": "club"}, {"eval_batch_size": 4}, "evaluated at once"),
    ("transformer-tiny", "pairs.tsv", {"pairs": True}, {"length_penalty": 0.3}, "num_beams=1"),
    ("perceptron", "iris", {}, {"label_smoothing": 0.1}, "this is perceptron"),
    ("perceptron", "iris", {}, {"class_weights": "balanced"}, "this is perceptron"),
    ("mlp", "iris", {"loss": "mse"}, {"label_smoothing": 0.1}, "this is mse"),
    ("mlp", "xor", {}, {"max_samples": 2}, "every split alike"),
    ("mlp", "xor", {}, {"val": 0.3}, "every split alike"),
]


@pytest.mark.parametrize(
    ("model", "source", "base", "given", "said"), IN_VAIN, ids=[f"{c[0]}-{c[1]}-{next(iter(c[3]))}" for c in IN_VAIN]
)
def test_what_would_change_nothing_on_this_data_is_rejected(
    model: str, source: str, base: dict[str, Any], given: dict[str, Any], said: str, files: Path
) -> None:
    where = str(files / source) if (files / source).exists() else source
    assert not rejected(model, where, base)
    (key,) = given
    message = rejected(model, where, {**base, **given})
    assert message.startswith(f"{key}=")
    assert said in message


def test_both_sizes_of_a_batch_are_one_too_many(files: Path) -> None:
    (files / "reviews.tsv").write_text(
        "text\tlabel\n" + "".join(f"{'good fun ' * (i % 5 + 1)}\t{'ab'[i % 2]}\n" for i in range(60))
    )
    base = {"text": "text", "target": "label", "model.dim": 4}
    said = rejected("textcnn", str(files / "reviews.tsv"), {**base, "batch_size": 8, "batch_tokens": 64})
    assert said.startswith("batch_size=8 would change nothing: batch_tokens=64 replaces it")


def test_the_command_line_says_it_in_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mlp", "iris", "momentum=0.5"]) == 2
    assert "momentum=0.5 would change nothing" in " ".join(capsys.readouterr().err.split())
