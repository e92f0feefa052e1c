"""Low-rank adaptation in training: what learns, what is left behind, and what cannot be adapted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import cutaway
from cutaway.core.errors import SettingError
from cutaway.nn.lora import LoRALinear
from cutaway.runs.run import Run
from cutaway.training.setup import setup_training

from .conftest import stopping

SMALL: dict[str, Any] = {
    "model.layers": 2, "model.dim": 16, "model.heads": 2, "model.patch_size": 4, "max_samples": 64, "batch_size": 32,
    "epochs": 2, "tensorboard": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small ViT that learned scanned digits a little."""
    return cutaway.train("vit-tiny/16", "digits", out=tmp_path_factory.mktemp("vit") / "run", **SMALL)


def adapt(out: Path, begun: Run, **given: Any) -> Run:
    """The same ViT, adapted."""
    return cutaway.train(
        "vit-tiny/16", "digits", out=out, **{**SMALL, "weights": str(begun.folder), "lora": 2, **given}
    )


def test_little_learns_and_the_run_holds_a_plain_model(tmp_path: Path, begun: Run) -> None:
    run = adapt(tmp_path / "run", begun, freeze_epochs=0, weight_decay=0)
    assert any("numbers learn, and" in note for note in run.about["data"]["notes"])
    before, after = begun.model.state_dict(), run.model.state_dict()
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    expected = {f"blocks.{k}.attention.qkv.weight" for k in range(2)} | {"head.weight", "head.bias"}
    assert changed == expected
    for name in changed - {"head.weight", "head.bias"}:
        assert torch.linalg.matrix_rank((after[name] - before[name]).double(), rtol=1e-3) == 2
    assert run.evaluate()["accuracy"].value > 0


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, begun: Run) -> None:
    whole = adapt(tmp_path / "whole", begun)
    with stopping(3):
        adapt(tmp_path / "run", begun)
    resumed = cutaway.train(resume=tmp_path / "run").model.state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.model.state_dict().items())


def test_the_optimizer_remembers_what_learns_alone(begun: Run) -> None:
    given = {**SMALL, "weights": str(begun.folder), "lora": 2, "lora_layers": ("*.fc1",), "freeze_epochs": 0}
    ready = setup_training("vit-tiny/16", "digits", given)
    layers = [name for name, module in ready.model.named_modules() if isinstance(module, LoRALinear)]
    assert layers == ["blocks.0.mlp.fc1", "blocks.1.mlp.fc1"]
    learns = sum(p.numel() for p in ready.model.parameters() if p.requires_grad)
    hidden = ready.model.get_submodule(layers[0]).out_features  # type: ignore[union-attr]
    assert learns == 2 * 2 * (16 + hidden) + 17 * 10


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("vit-tiny/16", {}, "without weights they begin at random"),
        ("vit-tiny/16", {"lora": None, "lora_alpha": 3}, "lora_alpha=3 would change nothing"),
        ("vit-tiny/16", {"weights": True, "lora_layers": ("nothing*",)}, r"finds no lora_layers=nothing\*"),
    ],
)
def test_what_cannot_be_adapted_is_rejected(begun: Run, model: str, given: dict[str, Any], said: str) -> None:
    given = {"lora": 2, **SMALL, **given}
    if given.get("weights"):
        given["weights"] = str(begun.folder)
    with pytest.raises(SettingError, match=said):
        setup_training(model, "digits", {key: value for key, value in given.items() if value is not None})


def test_a_network_without_attention_names_its_linear_layers(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "moons", out=tmp_path / "run", count=60, epochs=1, tensorboard=False)
    given = {"weights": str(run.folder), "lora": 2, "count": 60}
    with pytest.raises(SettingError, match=r"finds no layers of attention in MLP; its linear layers are hidden\.0\."):
        setup_training("mlp", "moons", given)
    assert setup_training("mlp", "moons", {**given, "lora_layers": ("hidden.*",)}).model is not None
