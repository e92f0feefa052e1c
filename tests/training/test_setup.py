"""What a name, a source and settings become before the first step."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.core.errors import ModelError, SettingError, UnknownName
from cutaway.core.files import write_json
from cutaway.data.synthetic import write_example
from cutaway.training.batches import epoch_batches
from cutaway.training.cost_estimate import estimate_cost
from cutaway.training.device import DeviceContext
from cutaway.training.setup import setup_training


def test_the_cards_settings_are_used_unless_others_are_typed() -> None:
    ready = setup_training("perceptron", "iris", {})
    assert (ready.settings.optimizer, ready.settings.lr, ready.settings.batch_size) == ("sgd", 1.0, 1)
    assert setup_training("perceptron", "iris", {"lr": "0.5"}).settings.lr == 0.5
    assert ready.task.loss_name == "perceptron"


def test_the_model_fits_the_data() -> None:
    mlp = setup_training("mlp", "wine", {"model.hidden_dims": "5"}).model
    assert mlp(torch.zeros(2, 13)).shape == (2, 3)
    lenet = setup_training("lenet5", "digits", {})
    assert lenet.data.spec.shape == (1, 32, 32)
    larger = setup_training("lenet5-modern", "digits", {"image_size": "48"})
    assert larger.data.spec.shape == (1, 48, 48)
    assert larger.model(torch.zeros(1, 1, 48, 48)).shape == (1, 10)


@pytest.mark.parametrize(
    ("processes", "given", "said"),
    [
        (2, {"batch_size": 1}, "processes=2 shares each batch among 2, and it has 1 example: some would"),
        (4, {"batch_size": 3}, "it has 3 examples: .* Give batch_size=4 or more, or fewer processes.$"),
        (2, {"batch_size": 1, "accumulate": 4}, "accumulate=4 does not help: its batches are shared one by one"),
        (200, {"batch_size": 0}, "The training split has only these: give fewer processes"),
        (200, {"batch_size": 300}, "The training split has only these: give fewer processes"),
        (4, {"batch_size": 4}, None),
        (7, {"batch_size": 7}, None),  # the last batch of an epoch has three
    ],
)
def test_each_process_has_an_example_of_its_own(
    processes: int, given: dict[str, int], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("parallel.place_in_group", "device.group.rank_and_size"):
        monkeypatch.setattr(f"cutaway.training.{module}", lambda: (0, processes))
    asked = {**given, "processes": processes, "parallel": "ddp", "max_samples": 100, "device": "cpu"}
    if said is None:
        ready = setup_training("mlp", "iris", asked)
        sizes = [len(index) for index in epoch_batches(ready.data.splits["train"], ready.settings, epoch=0)]
        assert sizes[0] >= processes
        return
    with pytest.raises(SettingError, match=said):
        setup_training("mlp", "iris", asked)


def test_a_batch_with_fewer_examples_than_processes_counts_once() -> None:
    place = DeviceContext(torch.device("cpu"), torch.float32, None, False)
    for count, processes, carries in ((3, 7, False), (3, 7, True), (1, 2, False), (7, 3, True), (8, 4, False)):
        counted = torch.zeros(count)
        for rank in range(processes):
            here = replace(place, rank=rank, processes=processes)
            own = here.shard_batch(torch.arange(count), carries)
            assert len(own) > 0  # no process is left without any
            counted[own] += here.shard_weight(count, carries)
        torch.testing.assert_close(counted, torch.ones(count))


def test_a_forecast_is_learned_in_400_steps_at_least_unless_the_person_says_how_many(tmp_path: Path) -> None:
    for name, rows in (("short.csv", 100), ("long.csv", 9000)):
        (tmp_path / name).write_text("y\n" + "\n".join(str(k % 12) for k in range(rows)) + "\n")
    forecast = {"forecast": "y", "horizon": 4, "val": 0, "test": 0.1}

    def steps(name: str, **given: object) -> tuple[int, int]:
        chosen = setup_training("patchtst-small", str(tmp_path / name), {**forecast, **given}).settings
        return chosen.batch_size, chosen.epochs

    windows = 100 - 16 - 8 - 4 + 1  # the test split's first target is in step 92
    assert steps("short.csv") == (16, math.ceil(400 / math.ceil(windows / 16)))
    assert steps("short.csv", lr=0.1) == steps("short.csv")
    assert steps("short.csv", epochs=3) == (128, 3)
    assert steps("short.csv", batch_size=32) == (32, 10)
    assert steps("long.csv") == (128, 10)
    assert setup_training("lstm", str(tmp_path / "short.csv"), forecast).settings.batch_size == 16
    notes = setup_training("patchtst-small", str(tmp_path / "short.csv"), forecast).data.notes
    assert "training has 400 steps at least, here epochs=80 with batch_size=16" in notes[-1]


def test_word_vectors_of_a_short_text_are_trained_for_enough_steps_unless_the_length_is_set(tmp_path: Path) -> None:
    write_example("days.txt", tmp_path)
    (tmp_path / "tiny.txt").write_text("the cat sleeps . " * 40)

    def epochs(name: str, **given: object) -> int:
        return setup_training("word2vec-skipgram", str(tmp_path / name), given).settings.epochs

    found = setup_training("word2vec-skipgram", str(tmp_path / "days.txt"), {})
    steps = len(found.data.splits["train"].plan(found.settings.batch_size, torch.Generator()))
    assert found.settings.epochs == math.ceil(3000 / steps) > 20
    assert f"here epochs={found.settings.epochs}" in found.data.notes[-1]
    assert epochs("tiny.txt", val=0) == 100
    assert epochs("days.txt", epochs=5) == 5
    assert epochs("days.txt", batch_size=32) == 5


def test_the_seed_decides_the_weights() -> None:
    a, b, c = (setup_training("mlp", "iris", {"seed": s}).model.state_dict() for s in (1, 1, 2))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)


def test_balanced_weights_are_one_on_average_and_equal_for_classes() -> None:
    ready = setup_training("logistic", "breast_cancer", {"class_weights": "balanced"})
    target = ready.data.splits["train"].target
    weights = ready.task.class_weights  # type: ignore[attr-defined]
    assert weights[target].mean().item() == pytest.approx(1)
    totals = [weights[target][target == k].sum().item() for k in (0, 1)]
    assert totals[0] == pytest.approx(totals[1])


@pytest.mark.parametrize(
    ("model", "source", "given", "said"),
    [
        ("linear", "diabetes", {"sampling": "balanced"}, "sampling=balanced is for classes"),
        ("mlp", "iris", {"sampling": "balanced", "class_weights": "balanced"}, "give one of them"),
        ("mlp", "iris", {"tta": True}, "tta mirrors images, and this is table data"),
        ("mlp", "iris", {"num_beams": 3}, "num_beams=3 is for pairs of sequences and captions, and this is table data"),
        ("mlp", "iris", {"length_penalty": 1}, "length_penalty=1 is for pairs of sequences"),
        ("mlp", "iris", {"loss_chunk": 50}, "loss_chunk=50 is for attention models .* mlp on this data"),
    ],
)
def test_settings_without_a_meaning_for_the_data_are_rejected(
    model: str, source: str, given: dict[str, object], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        setup_training(model, source, given)


def book(folder: Path) -> Path:
    (folder / "book.txt").write_text("the cat sat on the mat\nand the dog on the rug\n" * 40)
    return folder / "book.txt"


SMALL = {"model.layers": 1, "model.dim": 4, "model.heads": 1, "length": 16}


def test_a_state_cannot_be_carried_without_one(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"stateful=true carries a state .* gpt2 has none: leave it out"):
        setup_training("gpt2", str(book(tmp_path)), {**SMALL, "stateful": "true"})


def test_a_batch_size_that_is_typed_stands_instead_of_the_cards_tokens(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("".join(f"a{i} b\t{i}\n" for i in range(40)))
    given: dict[str, object] = {"pairs": True, "model.layers": 1, "model.dim": 4, "model.heads": 1}
    card = setup_training("transformer-tiny", str(tmp_path / "p.tsv"), given).settings
    assert card.batch_tokens > 0
    typed = setup_training("transformer-tiny", str(tmp_path / "p.tsv"), {**given, "batch_size": 8}).settings
    assert (typed.batch_size, typed.batch_tokens) == (8, 0)


def test_the_path_of_a_tokenizer_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = setup_training("gpt2", str(book(tmp_path)), {**SMALL, "tokenizer": "wordpiece", "vocab_size": 60})
    write_json(tmp_path / "preprocessing.json", fitted.data.preprocessing.to_json())
    monkeypatch.chdir(tmp_path)
    ready = setup_training("gpt2", "book.txt", {**SMALL, "tokenizer": "preprocessing.json"})
    assert ready.data_settings.tokenizer == str(tmp_path / "preprocessing.json")


def test_batches_of_every_length_are_not_called_nearly_equal(tmp_path: Path) -> None:
    pairs = "".join(f"{'a b c d e f g h'[: 2 * (i % 8) + 1]}\t{i % 2}\n" for i in range(80))
    (tmp_path / "p.tsv").write_text(pairs)
    small = {"pairs": True, "model.hidden_dim": 4, "tokenizer": "words"}
    (note,) = [n for n in setup_training("seq2seq-gru", str(tmp_path / "p.tsv"), small).data.notes if "padding" in n]
    assert note.endswith("of the steps of a batch are padding.")
    few = {**small, "batch_size": 4}
    (note,) = [n for n in setup_training("seq2seq-gru", str(tmp_path / "p.tsv"), few).data.notes if "padding" in n]
    assert "Batches are of nearly equal length" in note


@pytest.mark.parametrize(
    ("model", "given", "error", "said"),
    [
        ("resnet18", {}, ModelError, "takes image data"),
        ("mlp", {"model.layers": 3}, UnknownName, "'layers'"),
        ("mlp", {"model.dropout": 2}, ModelError, r"dropout=2"),
        ("mlp", {"lrr": 1}, UnknownName, "Similar: lr"),
        ("mlp", {"loss": "mse", "label_smoothing": "x"}, SettingError, "label_smoothing=x"),
    ],
)
def test_what_cannot_be_is_rejected(model: str, given: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        setup_training(model, "iris", given)


def test_an_estimate_weighs_what_is_there() -> None:
    ready = setup_training("lenet5-modern", "digits", {"batch_size": 64})
    found = estimate_cost(ready)
    parameters = sum(p.numel() for p in ready.model.parameters())
    assert found.weights == 4 * parameters
    assert found.learning >= 4 * 3 * parameters  # gradients and AdamW's two moments
    assert found.steps == -(-len(ready.data.splits["train"]) // 64)
    images = 64 * 6 * 28 * 28 * 4  # what C1 gives is kept
    assert images < found.activations < 20 * images
    assert 0 < found.seconds_per_step < 1
    assert not Path("unused").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lr": 10.0}, "lr=10 is very high for optimizer=adamw"),
        ({"lr": 10.0, "optimizer": "sgd"}, "lr=10 is very high for optimizer=sgd"),
        ({"lr": 1.0, "optimizer": "sgd"}, ""),
        ({"lr": 0.1}, ""),
        ({"lr": 1e-12}, "lr=1e-12 is very low"),
        ({"label_smoothing": 0.9}, "label_smoothing=0.9 is very high"),
        ({"grad_clip": 1e-6}, "grad_clip=1e-06 is very low"),
        ({"batch_size": 100_000}, "batch_size=100,000 exceeds the"),
        ({"lr": 2.0, "schedule": "noam"}, ""),
        ({}, ""),
    ],
)
def test_a_typed_setting_that_prevents_learning_is_told_in_one_line(given: dict[str, Any], said: str) -> None:
    from cutaway.training.setup import unusual_setting_notes

    lines = unusual_setting_notes(setup_training("softmax", "iris", given), given)
    assert len(lines) == bool(said)
    assert all(line.startswith(f"Unusual setting: {said}") and len(line) <= 160 for line in lines)


def test_the_scale_of_the_perceptron_rule_is_not_unusual() -> None:
    from cutaway.training.setup import unusual_setting_notes

    assert unusual_setting_notes(setup_training("perceptron", "xor", {"lr": 10.0}), {"lr": 10.0}) == []
