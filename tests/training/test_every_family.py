"""Every family that takes images learns from a set of small grey ones, whatever sizes it was published for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutaway.core.files import read_json
from cutaway.core.spec import Classes
from cutaway.models.registry import Preset, presets
from cutaway.runs.train import train_model
from cutaway.training.callbacks import Progress

FAMILIES: dict[str, Preset] = {}  # the first preset of each file
for found in presets().values():
    if found.takes == ("image",) and Classes in found.targets:
        FAMILIES.setdefault(found.module.__name__.rpartition(".")[2], found)

FEWER_UNITS = {  # whose checkpoints would be of hundreds of mebibytes
    "alexnet": {"model.hidden_dim": 64},
    "vgg": {"model.hidden_dim": 64},
    "convnext": {"model.width": 16},
    "resnet": {"model.width": 16},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_it_trains_and_is_evaluated(family: str, tmp_path: Path) -> None:
    settings = {"epochs": 1, "max_samples": 20, "batch_size": 10, "val": 0.01, "test": 0.01, "tensorboard": False}
    settings |= FEWER_UNITS.get(family, {})
    preset = FAMILIES[family]
    run = train_model(preset.name, "digits", settings, out=tmp_path, progress=Progress(shown=False))
    assert read_json(tmp_path / "evaluation.json")["metrics"]["loss"]["value"] > 0
    assert run.spec.shape[1:] == preset.image_sizes(run.model.config).choose(None, (8, 8))
