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


@pytest.mark.parametrize("name", ["run", "tokens"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Run = request.getfixturevalue(name)
    model, given = ("ddpm-unet-small", GIVEN) if name == "run" else ("image-gpt", PIXELS)
    with monkeypatch.context() as patch:
        once = Trainer.step

        def step(self: Trainer, *args: Any) -> None:
            once(self, *args)
            self._stop.requested = self.state.update == 2

        patch.setattr(Trainer, "step", step)
        with pytest.raises(Interrupted):
            cutaway.train(model, "digits", out=tmp_path / "run", **given)
    resumed = cutaway.train(resume=tmp_path / "run")
    ours, theirs = (read_tensors(one.folder / "model" / "model.safetensors")[0] for one in (whole, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert resumed.preprocessing == whole.preprocessing


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


PIXELS: dict[str, Any] = {
    **{k: v for k, v in GIVEN.items() if "." not in k},
    "model.dim": 16, "model.layers": 1, "model.heads": 2, "palette_size": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of image tokens that has seen a few digits."""
    return cutaway.train("image-gpt", "digits", out=tmp_path_factory.mktemp("tokens") / "run", **PIXELS)


def test_bits_of_images_include_the_levels_that_a_token_stands_for(tokens: Run, tmp_path: Path) -> None:
    found = tokens.evaluate()
    split = tokens.data().splits["test"]
    (inputs,), target = next(iter(split.batches([torch.arange(len(split))])))
    with torch.no_grad():
        log_p = tokens.model.eval()(inputs).double().log_softmax(2).gather(2, target[..., None])[..., 0]  # (n, 64)
    cells = torch.tensor(tokens.spec.target.cells).double()  # type: ignore[union-attr]
    assert cells.sum() == 256
    assert found["bits_per_token"].value == pytest.approx(float(-log_p.mean() / np.log(2)), rel=1e-5)
    bits = -(log_p - cells[target].log()).mean() / np.log(2)
    assert found["bits_per_dimension"].value == pytest.approx(float(bits), rel=1e-5)
    baseline = json.loads((tokens.folder / "evaluation.json").read_text())["baseline"]
    assert baseline["name"] == "independent-pixel histogram baseline"
    # An image file has no class: its likelihood is that after the token for no class.
    split.image(0).save(tmp_path / "digit.png")  # type: ignore[union-attr]
    row = tokens.predict([tmp_path / "digit.png"])[0]
    none = torch.cat([torch.full((1, 1), 14), inputs[:1, 1:]], dim=1)
    with torch.no_grad():
        alone = tokens.model.eval()(none).double().log_softmax(2).gather(2, target[:1, :, None])
    assert row["loss"] == pytest.approx(float(-alone.mean()), rel=1e-5)


def test_sampled_tokens_do_not_depend_on_their_batch(tokens: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    together, classes, _ = tokens.sample_tensors(12, seed=5)
    assert classes is not None
    assert classes.tolist() == [*range(10), 0, 1]
    palette = {color[0] for color in tokens.preprocessing.palette}  # type: ignore[attr-defined]
    assert set(together.unique().tolist()) <= palette
    assert torch.equal(tokens.sample_tensors(1, "3", seed=8)[0][0], together[3])
    monkeypatch.setattr(image_generation, "TOGETHER", 5)
    assert torch.equal(tokens.sample_tensors(12, seed=5)[0], together)
    assert not torch.equal(tokens.sample_tensors(12, seed=6)[0], together)
    greedy = tokens.sample_tensors(2, "3", temperature=0)[0]
    assert torch.equal(greedy[0], greedy[1])


def test_completions_keep_the_upper_half(tokens: Run, cli: CLI, tmp_path: Path) -> None:
    images, drawn = tokens.complete("test", 3, limit=2, seed=1)
    assert (images.shape, drawn.shape) == ((2, 1, 8, 8), (2, 3, 1, 8, 8))
    assert torch.equal(drawn[:, :, :, :4], images[:, None, :, :4].expand(-1, 3, -1, -1, -1))
    assert not torch.equal(drawn[0, 0], drawn[0, 1])
    told = cli(
        "generate",
        tokens.folder,
        "--complete",
        "test",
        "--count",
        "2",
        "--samples",
        "3",
        "--seed",
        "1",
        "--out",
        "c.png",
    )
    assert told.status == 0, told.said
    assert "2 images in c.png, one a row: the given half, 3 completions, the original (seed 1)" in told.said
    with Image.open(tmp_path / "c.png") as written:
        shown = torch.from_numpy(np.asarray(written).copy())
    assert shown.shape == (22, 52)
    assert torch.equal(shown[2:10, 12:20], drawn[0, 0, 0])
    assert torch.equal(shown[12:20, 42:50], images[1, 0])
    Image.fromarray(images[0, 0].numpy()).save(tmp_path / "one.png")
    given, _ = tokens.complete(tmp_path / "one.png", of_class="7")
    assert torch.equal(given[0], images[0])


def test_options_that_do_not_fit_tokens_are_rejected(run: Run, tokens: Run, cli: CLI, tmp_path: Path) -> None:
    for folder, words, said in (
        (
            tokens.folder,
            ("--steps", "2"),
            "Invalid steps=2: only for diffusion models; this model samples images pixel",
        ),
        (tokens.folder, ("--samples", "2"), "--samples is only for text"),
        (tokens.folder, ("--temperature", "-1"), "Invalid temperature=-1"),
        (tokens.folder, ("--complete", "test", "--eta", "1"), "--eta is only for diffusion models"),
        (tokens.folder, ("--complete", "test", "--samples", "0"), "Invalid samples=0: must be at least 1"),
        (tokens.folder, ("--complete", "nothing.png"), "There is no image 'nothing.png'"),
        (run.folder, ("--complete", "test"), "--complete is only for models of image tokens"),
        (run.folder, ("--temperature", "1"), "--temperature is only for text"),
    ):
        answer = cli("generate", folder, *words, "--out", "b.png")
        assert (answer.status, answer.out) == (2, ""), words
        assert said in " ".join(answer.said.split()), (words, answer.said)
        assert not (tmp_path / "b.png").exists()
    assert "an image is sampled pixel by pixel" in " ".join(cli("export", tokens.folder, "x.onnx").said.split())
