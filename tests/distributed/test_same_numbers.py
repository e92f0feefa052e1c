"""In one process or in several: the same batches, gradients and weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import cutaway
from cutaway.distributed.group import joined, place
from cutaway.distributed.parts import gathered, part
from cutaway.models.saving import write_tensors
from cutaway.training.checkpoint import load_weights, newest
from cutaway.training.loop import Trainer
from cutaway.training.prepared import prepare
from cutaway.training.progress import Progress

from .ranks import tensors, together

TEXT = "".join(
    f"In line {k} the {('fox', 'dog', 'hen')[k % 3]} saw {k * 7 % 13} birds and went home.\n" for k in range(80)
)
PAIRS = "".join(f"{k} {k * 3 % 7} {k % 5}\t{k % 5} {k * 3 % 7}\n" for k in range(60))
SMALL = {"model.dim": 16, "model.layers": 2, "model.heads": 2, "model.dropout": 0.0}
FEW = {"crop": 0, "mixup": 0.0, "flip": False}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lenet5-modern": (
        "lenet5-modern", "digits",
        {**FEW, "max_samples": 100, "batch_size": 30, "optimizer": "momentum", "eps": "auto"},
    ),
    "resnet20": ("resnet20", "digits", {**FEW, "max_samples": 60, "batch_size": 13}),
    "mlp with batch norm": (
        "mlp", "digits",
        {"model.norm": "batch", "model.dropout": 0.0, "max_samples": 90, "batch_size": 31, "ema": 0.9},
    ),
    "gpt2": (
        "gpt2", "text.txt", {**SMALL, "length": 24, "batch_size": 6, "accumulate": 2, "grad_clip": 0.5, "ema": 0.9},
    ),
    "transformer-tiny": (
        "transformer-tiny", "pairs.tsv",
        {"pairs": True, "model.layers": 2, "model.dim": 64, "model.dropout": 0.0, "batch_size": 10},
    ),
    "bert": ("bert-base-uncased", "text.txt", {**SMALL, "length": 24, "batch_size": 5, "average_epochs": 2}),
    "lstm": (
        "lstm", "text.txt", {"model.embedding_dim": 12, "model.hidden_dim": 12, "model.dropout": 0.0, "batch_size": 5},
    ),
    "gcn": ("gcn", "karate", {"model.dropout": 0.0, "optimizer": "adagrad"}),
}  # fmt: skip
SHARDS: dict[str, tuple[str, str, dict[str, Any]]] = {  # as `cutaway prepare` makes them
    "text in shards": ("gpt2", "text.shards", {**SMALL, "length": 24, "batch_size": 5}),
    "images in tars": ("lenet5-modern", "images.shards", {**FEW, "batch_size": 13}),
}
SHORT = {"max_steps": 4}
PAIRED = {**SMALL, **SHORT, "pairs": True, "model.heads": 4, "batch_size": 10}
FAMILY: dict[str, tuple[str, str, dict[str, Any]]] = {  # whose heads and hidden units processes can share, beside those
    "t5": ("t5-small", "pairs.tsv", {**PAIRED, "model.head_dim": 8}),
    "bart": ("bart-base", "pairs.tsv", {**PAIRED, "model.attention_dropout": 0.0, "model.activation_dropout": 0.0}),
    "vit": (
        "vit-tiny/16", "digits",
        {**SMALL, **FEW, "model.patch_size": 4, "model.ffn_dim": 24, "max_samples": 60, "batch_size": 12, **SHORT},
    ),
    "parallel-transformer": ("parallel-transformer", "text.txt", {**SMALL, **SHORT, "length": 24, "batch_size": 6}),
}  # fmt: skip
HALVES: dict[str, dict[str, Any]] = {
    "float32": {"parallel": "ddp"},
    "whole": {"parallel": "ddp"},
    "rows": {"parallel": "fsdp", "recompute": "full"},
    "heads": {"tensor_parallel": 2},
}
TRANSFORMERS = ["gpt2", "transformer-tiny", "bert"]
WITHOUT_BLOCKS = ("lstm", "gcn", "lenet5-modern")
ALWAYS = {
    "max_steps": 20, "precision": "float64", "seed": 3, "tensorboard": False, "optimizer": "adamw", "lr": 3e-3,
    "eps": 1e-3, "threads": 1, "device": "cpu", "save_minutes": 60,
}  # fmt: skip


def trainer_of(name: str, data: Path, out: Path, how: dict[str, Any]) -> Trainer:
    """What trains a case in the processes that there are."""
    preset, source, own = {**CASES, **SHARDS, **FAMILY}[name]
    given = {**ALWAYS, **own, "processes": place()[1], **how}
    if preset in WITHOUT_BLOCKS:
        given.pop("recompute", None)
    ready = prepare(preset, str(data / source) if "." in source else source, given)
    trainer = Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, out / name, Progress(shown=False)
    )  # fmt: skip
    trainer.begin()
    return trainer


def end(trainer: Trainer, path: Path) -> None:
    """Train to the end; write the gradient of the last update, the weights, and what was told of the loss."""
    state, model = trainer.fit(), trainer.model
    found = {f"weight.{k}": v for k, v in model.state_dict().items()}
    found |= {f"gradient.{k}": p.grad for k, p in model.named_parameters() if p.grad is not None}
    if trainer.average:
        found |= {f"average.{k}": v for k, v in trainer.average.weights.items()}
    found = gathered(found, keep=True)
    found["losses"] = torch.tensor([row["train_loss"] for row in state.history[-8:]], dtype=torch.float64)
    if trainer.place.writes:
        if trainer.mean:
            found |= {f"mean.{k}": v for k, v in load_weights(trainer.checkpoints / "average.safetensors").items()}
        write_tensors(path, found, {})


def learn(data: Path, out: Path, names: list[str], how: dict[str, Any]) -> None:
    """Train each case by 20 updates."""
    with joined():
        for name in names:
            end(trainer_of(name, data, out, how), out / f"{name}.safetensors")


def go_on(data: Path, out: Path, name: str, how: dict[str, Any], until: int) -> None:
    """Train a case from its checkpoint, if there is one, to that update, and write a checkpoint; with 0 to the end."""
    with joined():
        trainer = trainer_of(name, data, out, how)
        if newest(trainer.checkpoints):
            trainer.resume()
        if not until:
            end(trainer, out / f"{name}.safetensors")
            return
        for _ in zip(range(until - trainer.state.update), trainer.epoch()):
            pass
        assert trainer.state.update == until
        trainer.checkpoint_now()
        trainer.strategy.saved()


def learn_in_half_precision(data: Path, out: Path) -> None:
    """Train GPT-2 by an update: in float32, and with products in bfloat16 by weights whole, in rows and by heads."""
    with joined():
        once, half = {"max_steps": 1, "ema": 0.0, "precision": "float32"}, {"precision": "bfloat16"}
        for name, how in HALVES.items():
            given = {**once, **(half if name != "float32" else {}), **how}
            end(trainer_of("gpt2", data, out, given), out / f"{name}.safetensors")


def drop(data: Path, out: Path) -> None:
    """Train bart, which has dropout everywhere, by an update of two processes that share heads and hidden units; write
    where numbers were dropped that this process alone has, and that both have, and weights that both have."""
    with joined():
        dropping = {f"model.{key}": 0.5 for key in ("dropout", "attention_dropout", "activation_dropout")}
        trainer = trainer_of("bart", data, out, {**dropping, "tensor_parallel": 2, "max_steps": 1, "recompute": "full"})
        found: dict[str, torch.Tensor] = {}

        def look(name: str) -> Callable[..., None]:
            def hook(module: object, given: object, output: torch.Tensor) -> None:
                found.setdefault(name, output == 0)

            return hook

        block: Any = trainer.model.get_submodule("decoder.0")
        block.mlp.dropout.register_forward_hook(look("own"))
        block.dropout.register_forward_hook(look("common"))
        trainer.fit()
        found["weight"] = part(trainer.model.get_parameter("decoder.0.norm1.weight")).detach()
        write_tensors(out / f"dropped-{place()[0]}.safetensors", {k: v.contiguous() for k, v in found.items()}, {})


def prepare_shards(data: Path) -> None:
    """Text and images as shards of less than all of them."""
    images, labels = load_digits(return_X_y=True)
    for number, (image, label) in enumerate(zip(images[:70], labels)):
        file = data / "images" / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image.reshape(8, 8) * 15).astype("uint8")).save(file)
    cutaway.prepare(data / "text.txt", data / "text.shards", workers=0)
    cutaway.prepare(data / "images", data / "images.shards", workers=0)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data, and what one process makes of it."""
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("alone")
    (data / "text.txt").write_text(TEXT)
    (data / "pairs.tsv").write_text(PAIRS)
    prepare_shards(data)
    assert together(learn, data, out, [*CASES, *SHARDS, *FAMILY], {}, count=1) == [0]
    return data, out


@pytest.mark.parametrize(
    ("count", "how", "names"),
    [
        (2, {"parallel": "ddp"}, [*CASES, *SHARDS]),
        (3, {"parallel": "ddp", "recompute": "full"}, ["resnet20", "lstm"]),
        (4, {"parallel": "ddp"}, ["gpt2", "lstm"]),
        (2, {"parallel": "fsdp"}, [*CASES]),
        (3, {"parallel": "fsdp", "recompute": "full"}, ["mlp with batch norm", "gpt2"]),
        (4, {"parallel": "hsdp", "recompute": "selective"}, ["gpt2", "transformer-tiny"]),
        (2, {"tensor_parallel": 2}, [*TRANSFORMERS, *FAMILY]),
        pytest.param(4, {"tensor_parallel": 2, "parallel": "ddp"}, TRANSFORMERS, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_gradients_and_weights_after_20_updates_are_those_of_one_process(
    alone: tuple[Path, Path], tmp_path: Path, count: int, how: dict[str, Any], names: list[str]
) -> None:
    data, expected = alone
    assert together(learn, data, tmp_path, names, how, count=count) == [0] * count
    for name in names:
        agree(tmp_path, expected, name)


def agree(ours: Path, expected: Path, name: str) -> None:
    """Raise where what was learned of a case differs."""
    found, one = tensors(ours / f"{name}.safetensors"), tensors(expected / f"{name}.safetensors")
    assert set(found) == set(one)
    assert any(key.startswith("gradient.") for key in one)
    for key, value in one.items():
        torch.testing.assert_close(found[key], value, rtol=1e-8, atol=1e-10, msg=lambda m, k=key: f"{name}, {k}: {m}")


def test_checkpoints_go_from_rows_to_rows_of_heads_and_from_there_to_heads(
    alone: tuple[Path, Path], tmp_path: Path
) -> None:
    data, expected = alone
    four = {"tensor_parallel": 2, "parallel": "fsdp", "recompute": "selective"}
    assert together(go_on, data, tmp_path, "gpt2", {"parallel": "fsdp"}, 2, count=2) == [0] * 2
    assert together(go_on, data, tmp_path, "gpt2", four, 4, count=4) == [0] * 4
    assert together(go_on, data, tmp_path, "gpt2", {"tensor_parallel": 2}, 0, count=2) == [0] * 2
    agree(tmp_path, expected, "gpt2")


def test_what_only_one_process_has_is_dropped_by_itself_and_the_rest_alike(
    alone: tuple[Path, Path], tmp_path: Path
) -> None:
    assert together(drop, alone[0], tmp_path, count=2) == [0, 0]
    first, second = (tensors(tmp_path / f"dropped-{rank}.safetensors") for rank in range(2))
    assert first["common"].equal(second["common"])
    assert first["weight"].equal(second["weight"])
    assert 0.4 < first["own"].double().mean() < 0.6
    both = (first["own"] & second["own"]).double().mean()
    assert 0.15 < both < 0.35  # as of draws that have nothing to do with each other


def test_products_in_bfloat16_are_as_far_from_float32_in_parts_as_whole(
    alone: tuple[Path, Path], tmp_path: Path
) -> None:
    assert together(learn_in_half_precision, alone[0], tmp_path, count=2) == [0, 0]
    found = {}
    for name in HALVES:
        of_each = sorted(tensors(tmp_path / f"{name}.safetensors").items())
        found[name] = torch.cat([x.flatten() for key, x in of_each if key.startswith("gradient.")])
    exact = found.pop("float32")
    distance = {name: float((x - exact).norm() / exact.norm()) for name, x in found.items()}
    assert all(0 < far < 2**-6 for far in distance.values())  # a few roundings to 8 digits
    assert distance["rows"] < 1.5 * distance["whole"]
