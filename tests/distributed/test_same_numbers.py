"""In one process or in several: the same batches, gradients and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.distributed.group import joined, place
from cutaway.distributed.parts import gathered
from cutaway.models.saving import write_tensors
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
    "lenet5-modern": ("lenet5-modern", "digits", {**FEW, "max_samples": 100, "batch_size": 30}),
    "resnet20": ("resnet20", "digits", {**FEW, "max_samples": 60, "batch_size": 13}),
    "mlp with batch norm": (
        "mlp", "digits",
        {"model.norm": "batch", "model.dropout": 0.0, "max_samples": 90, "batch_size": 31, "ema": 0.9},
    ),
    "gpt2": ("gpt2", "text.txt", {**SMALL, "length": 24, "batch_size": 6, "accumulate": 2, "grad_clip": 0.5}),
    "transformer-tiny": ("transformer-tiny", "pairs.tsv", {"pairs": True, "model.dropout": 0.0, "batch_size": 10}),
    "bert": ("bert-base-uncased", "text.txt", {**SMALL, "length": 24, "batch_size": 5}),
    "lstm": (
        "lstm", "text.txt", {"model.embedding_dim": 12, "model.hidden_dim": 12, "model.dropout": 0.0, "batch_size": 5},
    ),
    "gcn": ("gcn", "karate", {"model.dropout": 0.0}),
}  # fmt: skip
WITHOUT_BLOCKS = ("lstm", "gcn", "lenet5-modern")
ALWAYS = {
    "max_steps": 20, "precision": "float64", "seed": 3, "tensorboard": False, "optimizer": "adamw", "lr": 3e-3,
    "eps": 1e-3, "threads": 1, "device": "cpu", "save_minutes": 60,
}  # fmt: skip


def learn(data: Path, out: Path, names: list[str], how: dict[str, Any]) -> None:
    """Train each case by 20 updates; write the gradient of the last, the weights, and what was told of the loss."""
    with joined():
        for name in names:
            preset, source, own = CASES[name]
            given = {**own, **ALWAYS, "processes": place()[1], **how}
            if preset in WITHOUT_BLOCKS:
                given.pop("recompute", None)
            ready = prepare(preset, str(data / source) if "." in source else source, given)
            trainer = Trainer(
                ready.model, ready.data, ready.task, ready.settings, ready.place, out / name, Progress(shown=False)
            )
            trainer.begin()
            state = trainer.fit()
            model = trainer.model
            found = {f"weight.{k}": v for k, v in model.state_dict().items()}
            found |= {f"gradient.{k}": p.grad for k, p in model.named_parameters() if p.grad is not None}
            found = gathered(found, keep=True)
            found["losses"] = torch.tensor([row["train_loss"] for row in state.history], dtype=torch.float64)
            if ready.place.writes:
                write_tensors(out / f"{name}.safetensors", found, {})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data, and what one process makes of it."""
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("alone")
    (data / "text.txt").write_text(TEXT)
    (data / "pairs.tsv").write_text(PAIRS)
    assert together(learn, data, out, [*CASES], {}, count=1) == [0]
    return data, out


@pytest.mark.parametrize(
    ("count", "how", "names"),
    [
        (2, {"parallel": "ddp"}, [*CASES]),
        (3, {"parallel": "ddp", "recompute": "full"}, ["resnet20", "lstm"]),
        (4, {"parallel": "ddp"}, ["gpt2", "lstm"]),
        (2, {"parallel": "fsdp"}, [*CASES]),
        (3, {"parallel": "fsdp", "recompute": "full"}, ["mlp with batch norm", "gpt2"]),
        (4, {"parallel": "hsdp", "recompute": "selective"}, ["gpt2", "transformer-tiny"]),
    ],
    ids=str,
)
def test_gradients_and_weights_after_20_updates_are_those_of_one_process(
    alone: tuple[Path, Path], tmp_path: Path, count: int, how: dict[str, Any], names: list[str]
) -> None:
    data, expected = alone
    assert together(learn, data, tmp_path, names, how, count=count) == [0] * count
    for name in names:
        ours, one = tensors(tmp_path / f"{name}.safetensors"), tensors(expected / f"{name}.safetensors")
        assert set(ours) == set(one)
        assert any(key.startswith("gradient.") for key in one)
        for key, value in one.items():
            torch.testing.assert_close(
                ours[key], value, rtol=1e-8, atol=1e-10, msg=lambda m, n=name, k=key: f"{n}, {k}: {m}"
            )
