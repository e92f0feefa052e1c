"""Text-to-image: from captioned images to pictures of a prompt; resumed, evaluated, completed, inspected, rejected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cutaway
from cutaway.checkpoints.saving import read_tensors, write_weights
from cutaway.core.errors import CutawayWarning, SettingError
from cutaway.core.files import read_json, write_json
from cutaway.data.images.text_to_image import CaptionedTokenSplit
from cutaway.data.synthetic.shape_scenes import all_scenes, draw_scene
from cutaway.runs.run import Run
from cutaway.training.callbacks import Interrupted
from cutaway.training.trainer import Trainer

from .conftest import Answer

CLI = Callable[..., Answer]
PROMPT = "a red circle above a blue square"
GIVEN: dict[str, Any] = {
    "epochs": 6, "batch_size": 16, "tensorboard": False, "threads": 1, "seed": 3,
    "model.dim": 16, "model.layers": 1, "model.heads": 2, "optimizer": "muon", "lr": 0.02,
}  # fmt: skip


def write_scenes(folder: Path) -> Path:
    """Write a hundred scenes of two shapes, described in words, to a folder."""
    folder.mkdir()
    rng, lines = np.random.default_rng(0), []
    for k in range(100):
        scene = all_scenes()[k * 5 % 264]
        Image.fromarray(draw_scene(scene, rng)).save(folder / f"{k:03}.png")
        lines.append(f"{k:03}.png\t{scene.captions[k % 2]}")
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of scenes with captions."""
    return write_scenes(tmp_path_factory.mktemp("scenes") / "shapes")


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of image tokens that has seen a few scenes."""
    return cutaway.train("image-gpt", scenes, out=tmp_path_factory.mktemp("captioned") / "run", **GIVEN)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    run: Run, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        once = Trainer.step

        def step(self: Trainer, *args: Any) -> None:
            once(self, *args)
            self._stop.requested = self.state.update == 2

        patch.setattr(Trainer, "step", step)
        with pytest.raises(Interrupted):
            cutaway.train("image-gpt", scenes, out=tmp_path / "run", **GIVEN)
    resumed = cutaway.train(resume=tmp_path / "run")
    ours, theirs = (read_tensors(one.folder / "model" / "model.safetensors")[0] for one in (run, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert resumed.preprocessing.to_json() == run.preprocessing.to_json()


def test_bits_are_those_of_the_pixels_given_the_caption(run: Run, scenes: Path) -> None:
    found = run.evaluate()
    split = run.data().splits["test"]
    assert isinstance(split, CaptionedTokenSplit)
    (inputs,), tokens = next(iter(split.batches([torch.arange(len(split))])))
    with torch.no_grad():
        log_p = run.model.eval()(inputs).double().log_softmax(2).gather(2, tokens[..., None])[..., 0]
    assert log_p.shape == (15, 100)
    assert found["bits_per_token"].value == pytest.approx(float(-log_p.mean() / np.log(2)), rel=1e-5)
    assert found["bits_per_dimension"].value == pytest.approx(float(-log_p.mean() / np.log(2) / 3), rel=1e-5)
    assert run.evaluate(scenes)["loss"].value > 0
    # Without its caption, an image has another likelihood: that after padding alone.
    row = run.predict([split.image(0)])[0]
    alone = torch.cat([run.preprocessing.prompts(None, 1), inputs[:1, -99:]], dim=1)  # type: ignore[attr-defined]
    with torch.no_grad():
        expected = run.model.eval()(alone).double().log_softmax(2).gather(2, tokens[:1, :, None])
    assert row["loss"] == pytest.approx(float(-expected.mean()), rel=1e-5)
    document = json.loads((run.folder / "evaluation.json").read_text())
    assert {one["class"] for one in document["drawn"]["samples"]} == set(split.captions)


def test_images_of_a_prompt_are_written(run: Run, cli: CLI, tmp_path: Path) -> None:
    told = cli("generate", run.folder, "--prompt", PROMPT, "--count", "3", "--seed", "5", "--out", "new.png", "--json")
    assert told.status == 0, told.said
    assert json.loads(told.out)["prompt"] == PROMPT
    drawn, classes, _ = run.sample_tensors(3, prompt=PROMPT, seed=5)
    assert classes is None
    with Image.open(tmp_path / "new.png") as written:
        shown = torch.from_numpy(np.asarray(written).copy()).permute(2, 0, 1)
    assert shown.shape == (3, 14, 38)
    assert torch.equal(shown[:, 2:12, 14:24], drawn[1])
    assert torch.equal(run.sample_tensors(1, prompt=PROMPT, seed=6)[0][0], drawn[1])
    texts = (PROMPT, "a green square left of a yellow triangle", None)
    of_each = [run.sample_tensors(16, prompt=text, seed=5)[0] for text in texts]
    assert not any(torch.equal(of_each[i], of_each[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert len(run.sample(2, prompt=PROMPT)) == 2


def test_completions_keep_the_caption_and_the_upper_half(run: Run, cli: CLI) -> None:
    images, drawn = run.complete("test", 2, limit=3, seed=1)
    assert (images.shape, drawn.shape) == ((3, 3, 10, 10), (3, 2, 3, 10, 10))
    assert torch.equal(drawn[:, :, :, :5], images[:, None, :, :5].expand(-1, 2, -1, -1, -1))
    _, others = run.complete("test", 2, prompt=PROMPT, limit=3, seed=1)
    assert not torch.equal(others, drawn)
    told = cli("generate", run.folder, "--complete", "test", "--prompt", PROMPT, "--count", "2", "--out", "c.png")
    assert told.status == 0, told.said


def test_prompts_that_do_not_fit_are_rejected(run: Run, cli: CLI, tmp_path: Path) -> None:
    for words, said in (
        (("--prompt", f"{PROMPT} and a green circle"), "has 11 tokens, and the longest caption in training has 8"),
        (("--prompt", "cats"), "none of its words is in the captions of training"),
        (("--class", "x"), "Invalid class=x: this model is trained without classes"),
        (("--samples", "2"), "--samples is only for text"),
    ):
        answer = cli("generate", run.folder, *words, "--out", "b.png")
        assert (answer.status, answer.out) == (2, ""), words
        assert said in " ".join(answer.said.split()), (words, answer.said)
        assert not (tmp_path / "b.png").exists()
    told = cli("generate", run.folder, "--prompt", "a purple circle", "--count", "1", "--out", "b.png")
    assert told.status == 0
    assert "note: unknown to the model: 'purple'; each is replaced by the unknown word." in told.said
    with pytest.warns(CutawayWarning, match="'purple'"):
        run.sample(1, prompt="a purple circle")


def test_a_run_without_captions_takes_no_prompt(cli: CLI, tmp_path: Path) -> None:
    run = cutaway.train("image-gpt", "digits", out=tmp_path / "run", max_samples=64, **GIVEN)
    assert "--prompt is only for text" in cli("generate", run.folder, "--prompt", "seven", "--out", "b.png").said
    with pytest.raises(SettingError, match="Invalid prompt='seven': this run was trained without captions"):
        run.sample(1, prompt="seven")
    # Runs from before captions have neither setting.
    images = run.sample_tensors(4)[0]
    shutil.copytree(run.folder, tmp_path / "old")
    folder = tmp_path / "old" / "model"
    preprocessing, description = (read_json(folder / name) for name in ("preprocessing.json", "config.json"))
    assert _without(preprocessing) == _without(description) == 2
    write_json(folder / "preprocessing.json", preprocessing)
    write_json(folder / "config.json", description)
    write_weights(folder, read_tensors(folder / "model.safetensors")[0], description)
    assert torch.equal(Run(tmp_path / "old").sample_tensors(4)[0], images)


def _without(document: Any) -> int:
    """Remove the settings of captions from a document, and return how many there were."""
    if isinstance(document, list):
        return sum(map(_without, document))
    if not isinstance(document, dict):
        return 0
    found = sum(document.pop(key, None) is not None for key in ("words", "caption"))
    return found + sum(map(_without, document.values()))
