"""The view of a model of image tokens: its images, bits and maps are those of the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import cutaway
from cutaway.core.errors import SettingError
from cutaway.data.images.text_to_image import CaptionedTokenSplit
from cutaway.runs.run import Run
from cutaway.views import image_generation
from cutaway.views.attention_capture import capture_attention
from cutaway.views.positions import find_position_tables
from cutaway.views.registry import suits
from cutaway.views.subject import Subject, open_preset, open_run

from ..cli.test_text_to_image import GIVEN, PROMPT, write_scenes
from .test_denoising import drawn, levels_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of image tokens that has seen a few digits."""
    return cutaway.train(
        "image-gpt", "digits", out=tmp_path_factory.mktemp("pixels") / "run", max_samples=64, epochs=1, threads=1,
        tensorboard=False, **{"model.dim": 16, "model.layers": 2, "model.heads": 2},
    )  # fmt: skip


def opened(run: Run, **options: str) -> Subject:
    return open_run(run, options=options)


@torch.no_grad()
def test_images_bits_and_attention_are_those_of_the_model(run: Run) -> None:
    subject = opened(run, example="1", pixel="20", seed="4")
    view = image_generation.draw_pixels(subject)
    found = drawn(view)
    new = found["New images"]["tiles"]
    assert [tile["label"] for tile in new] == list(map(str, range(10)))
    assert torch.equal(levels_of(new), run.sample_tensors(10, seed=4)[0][:, 0])

    images, completed = run.complete("test", 3, limit=3, seed=4)
    rows = levels_of(found["Completions of the lower half"]["tiles"]).view(3, 5, 8, 8)
    assert torch.equal(rows[:, 1:4], completed[:, :, 0])
    assert torch.equal(rows[:, 4], images[:, 0])
    assert (rows[:, 0, 4:] == 128).all()

    assert subject.target is not None
    log_p = run.model.eval()(subject.inputs[0][1:2]).log_softmax(2)[0]
    bits = -log_p.gather(1, subject.target[1][:, None])[:, 0] / torch.tensor(2.0).log()
    tiles = next(d for title, d in found.items() if title.startswith("Bits of each pixel"))["tiles"]
    assert torch.equal(levels_of(tiles)[1].flatten(), (bits / bits.max() * 255).round().to(torch.uint8))
    assert f"{float(bits.max()):.4g}" in view["summary"]

    (name, weights), *_ = capture_attention(run.model, (subject.inputs[0][1:2],), image_generation._weights)
    tile = levels_of(found["Attention in the prediction of pixel r2 c4"]["tiles"][:1])[0].flatten()
    row = weights[0, 20, 1:21]  # the keys of pixels 0 … 19
    assert torch.equal(tile[:20], (row / row.max() * 255).round().mul(0.8).to(torch.uint8))
    assert (tile[20], int(tile[21:].max())) == (255, 0)
    means = {(r[0], r[1]): r[2:] for r in view["table"]["rows"]}
    expected = (
        weights[0, :, 0].mean(),
        torch.stack([weights[0, t, t] for t in range(64) if t % 8]).mean(),  # key t is pixel t − 1
        torch.stack([weights[0, t, t - 7] for t in range(8, 64)]).mean(),  # key t − 7 is pixel t − 8
    )
    assert means[name, 0] == pytest.approx([float(x) for x in expected], rel=1e-5)


def test_it_is_for_runs_of_image_tokens(run: Run) -> None:
    assert suits("pixels", opened(run))
    assert not suits("denoising", opened(run))
    assert not suits("pixels", open_preset("image-gpt", {"dim": 8, "layers": 1, "heads": 2, "sides": (4, 4)}))
    for key, value in (("pixel", "64"), ("temperature", "warm"), ("class", "x"), ("example", "8")):
        with pytest.raises(SettingError, match=f"Invalid {key}={value}"):
            image_generation.draw_pixels(opened(run, **{key: value}))


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of image tokens that has seen a few scenes with captions."""
    root = tmp_path_factory.mktemp("captioned")
    return cutaway.train("image-gpt", write_scenes(root / "shapes"), out=root / "run", **GIVEN | {"model.layers": 2})


def colors_of(tiles: list[dict[str, Any]]) -> Tensor:
    """The pixels of pictures in colour, (n, 3, H, W)."""
    return levels_of(tiles).permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def test_the_caption_of_an_image_is_shown(captioned: Run) -> None:
    subject = opened(captioned, example="1", pixel="43", seed="4")
    assert isinstance(subject.split, CaptionedTokenSplit)
    captions = [subject.split.captions[i] for i in subject.rows]
    view = image_generation.draw_pixels(subject)
    found = drawn(view)
    new = found["New images"]["tiles"]
    assert [tile["label"] for tile in new] == captions
    for k, caption in enumerate(captions[:3]):
        assert torch.equal(colors_of(new)[k], captioned.sample_tensors(1, prompt=caption, seed=4 + k)[0][0])
    _, completed = captioned.complete("test", 3, limit=3, seed=4)
    rows = colors_of(found["Completions of the lower half"]["tiles"]).view(3, 5, 3, 10, 10)
    assert torch.equal(rows[:, 1:4], completed)

    inputs = subject.inputs[0][1:2]
    (name, weights), *_ = capture_attention(captioned.model, (inputs,), image_generation._weights)
    assert weights.shape == (2, 108, 108)
    tile = levels_of(found["Attention in the prediction of pixel r4 c3"]["tiles"][:1])[0].flatten()
    row = weights[0, 8 + 43, 9 : 9 + 43]  # the query is 43 after the start token, whose key is 8
    assert torch.equal(tile[:43], (row / row.max() * 255).round().mul(0.8).to(torch.uint8))
    matrix = found["Attention to the caption in the prediction of pixel r4 c3"]
    words = captions[1].split()
    words += ["(padding)"] * (8 - len(words))
    assert matrix["columns"] == [f"{k}: {word}" for k, word in enumerate(words, 1)]
    assert matrix["rows"][:3] == ["blocks.0 head 0", "blocks.0 head 1", "blocks.1 head 0"]
    assert matrix["values"][0] == pytest.approx(weights[0, 51, :8].tolist(), abs=1e-3)
    means = {(r[0], r[1]): r[2:] for r in view["table"]["rows"]}
    expected = (
        weights[1, 8:, :8].sum(1).mean(),
        weights[1, 8:, 8].mean(),
        torch.stack([weights[1, 8 + t, 8 + t] for t in range(100) if t % 10]).mean(),
        torch.stack([weights[1, 8 + t, 8 + t - 9] for t in range(10, 100)]).mean(),
    )
    assert means[name, 1] == pytest.approx([float(x) for x in expected], rel=1e-4)


def test_a_prompt_gives_the_new_images(captioned: Run, run: Run) -> None:
    found = drawn(image_generation.draw_pixels(opened(captioned, prompt=PROMPT, seed="2")))
    tiles = found[f"New images: {PROMPT}"]["tiles"]
    assert torch.equal(colors_of(tiles), captioned.sample_tensors(10, prompt=PROMPT, seed=2)[0])
    with pytest.raises(SettingError, match="none of its words"):
        image_generation.draw_pixels(opened(captioned, prompt="cats"))
    with pytest.raises(SettingError, match="trained without captions"):
        image_generation.draw_pixels(opened(run, prompt=PROMPT))


def test_tokens_and_positions_of_captions_are_named(captioned: Run) -> None:
    subject = opened(captioned)
    assert isinstance(subject.split, CaptionedTokenSplit)
    words = subject.split.captions[subject.rows[0]].split()
    names = subject.tokens(0)
    assert names[: len(words)] == words
    assert (names[8:11], len(names)) == (["start", "r0 c0", "r0 c1"], 108)
    (table,) = find_position_tables(subject)
    assert (table.grid, len(table.rows)) == ((10, 10), 100)
    assert torch.equal(table.rows, captioned.model.positions.weight[8:])  # type: ignore[union-attr, index]
    assert suits("positions", subject)
