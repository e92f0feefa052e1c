"""Runs that draw images, from training to pictures: resumed, drawn alone and together, written, converted, rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import cutaway
from cutaway.checkpoints.saving import read_tensors
from cutaway.inference import image_generation
from cutaway.runs.run import Run
from cutaway.training.callbacks import Interrupted
from cutaway.training.trainer import Trainer

from .conftest import Answer

CLI = Callable[..., Answer]
GIVEN: dict[str, Any] = {
    "max_samples": 96, "epochs": 2, "batch_size": 32, "tensorboard": False, "threads": 1, "seed": 3,
    "model.widths": (4, 8), "model.groups": 2, "model.attention_levels": (2,), "model.timesteps": 20,
}  # fmt: skip
CODES = {**{k: v for k, v in GIVEN.items() if "." not in k}, "model.widths": (4,), "model.hidden_dim": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A diffusion model that has seen a few digits."""
    return cutaway.train("ddpm-unet-small", "digits", out=tmp_path_factory.mktemp("drawn") / "run", **GIVEN)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        once = Trainer.step

        def step(self: Trainer, *args: Any) -> None:
            once(self, *args)
            self._stop.requested = self.state.update == 2

        patch.setattr(Trainer, "step", step)
        with pytest.raises(Interrupted):
            cutaway.train("ddpm-unet-small", "digits", out=tmp_path / "run", **GIVEN)
    resumed = cutaway.train(resume=tmp_path / "run")
    ours, theirs = (read_tensors(one.folder / "model" / "model.safetensors")[0] for one in (run, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_an_image_does_not_depend_on_its_batch(run: Run, eta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    together = run.sample_tensors(5, steps=4, eta=eta)[0].int()
    alone = run.sample_tensors(1, run.spec.target.names[3], steps=4, eta=eta, seed=3)[0].int()
    assert (together[3] - alone[0]).abs().max() <= 1  # a level, where another order of sums rounds otherwise
    assert not torch.equal(together[3], together[4])
    sizes: list[int] = []
    once = type(run.model).draw

    def draw(self: Any, noise: Tensor, *args: Any, **process: Any) -> Tensor:
        sizes.append(len(noise))
        drawn: Tensor = once(self, noise, *args, **process)
        return drawn

    monkeypatch.setattr(image_generation, "TOGETHER", 2)
    monkeypatch.setattr(type(run.model), "draw", draw)
    assert (run.sample_tensors(5, steps=4, eta=eta)[0].int() - together).abs().max() <= 1
    assert sizes == [2, 2, 1]


def test_images_are_written_and_invalid_options_are_rejected(run: Run, cli: CLI, tmp_path: Path) -> None:
    folder = str(run.folder)
    told = cli("generate", folder, "--class", "3", "--count", "12", "--steps", "2", "--out", "threes.png", "--json")
    assert told.status == 0, told.said
    document = json.loads(told.out)
    assert (document["classes"], document["guidance"], document["steps"]) == (["3"] * 12, image_generation.GUIDANCE, 2)
    with Image.open(tmp_path / "threes.png") as written:
        assert written.size == (
            8 * (8 + image_generation.GAP) + image_generation.GAP,
            2 * (8 + image_generation.GAP) + image_generation.GAP,
        )
        shown = torch.from_numpy(np.asarray(written).copy())
    drawn = run.sample_tensors(12, "3", steps=2)[0]
    assert torch.equal(shown[2:10, 12:20], drawn[1, 0])
    assert torch.equal(shown[12:20, 2:10], drawn[8, 0])
    for words, said in (
        (("--out", "threes.png"), "threes.png already exists"),
        (("--out", "a.jpg"), "must end in .png"),
        (
            ("--class", "x", "--out", "b.png"),
            "Invalid class=x: must be a class of the training data. Classes: 0,",
        ),
        (("--steps", "21", "--out", "b.png"), "Invalid steps=21: must be 1 to 20"),
        (("--guidance", "-1", "--out", "b.png"), "Invalid guidance=-1"),
        (("--eta", "2", "--out", "b.png"), "Invalid eta=2"),
        (("--count", "0", "--out", "b.png"), "Invalid count=0"),
        (("--prompt", "seven", "--out", "b.png"), "--prompt is only for text, and this run generates images"),
    ):
        answer = cli("generate", folder, *words)
        assert (answer.status, answer.out) == (2, ""), words
        assert said in answer.said, (words, answer.said)
        assert not (tmp_path / "b.png").exists()
    assert "predicts noise and has no predictions for an image" in cli("predict", folder, "threes.png").said


def test_a_run_becomes_diffusers(run: Run, cli: CLI, tmp_path: Path) -> None:
    assert cli("convert", run.folder, "unet", "--to", "diffusers").status == 0
    settings = json.loads((tmp_path / "unet" / "config.json").read_text())
    assert (settings["sample_size"], settings["num_class_embeds"], settings["in_channels"]) == (8, 11, 1)
    model = cutaway.load(tmp_path / "unet")
    x = torch.randn(1, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(x), run.model(x))


def test_codes_are_decoded_at_once_and_say_how_unlikely_an_image_is(cli: CLI, tmp_path: Path) -> None:
    run = cutaway.train("vae", "digits", out=tmp_path / "run", **CODES)
    assert cli("generate", "run", "--count", "3").status == 0
    assert (tmp_path / "samples.png").is_file()
    for words, said in (
        (("--steps", "5"), "Invalid steps=5: only for diffusion models"),
        (("--class", "3"), "Invalid class=3: this model is not class-conditional"),
    ):
        assert said in cli("generate", "run", *words, "--overwrite").said
    (row,) = run.predict(run.sample(1))
    assert row["bits_per_dimension"] == pytest.approx(row["loss"] / 64 / np.log(2))
    assert cutaway.look(run, view="latent")["latent"]["summary"]
