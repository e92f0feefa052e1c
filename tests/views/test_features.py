"""Feature maps: the tiles are what the layers gave, and no layer's output is kept whole."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import cutaway
from cutaway.core.errors import SettingError, UnknownName
from cutaway.inspect import capture
from cutaway.views.feature_maps import LAYERS, MAPS, draw_features
from cutaway.views.subject import Subject, open_model, open_preset, open_run

from ..small import small
from .suited import suited


def opened(name: str, **options: str) -> Subject:
    model, inputs = small(name)
    return dataclasses.replace(open_model(model, *inputs), options=options)


def options_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    drawing = found["drawings"][-1]
    result: list[dict[str, Any]] = drawing["options"] if drawing["kind"] == "choice" else [{"drawings": [drawing]}]
    return result


@pytest.mark.parametrize("name", suited("features"))
def test_every_preset_with_maps(name: str) -> None:
    found = draw_features(opened(name))
    assert len(json.dumps(found, allow_nan=False)) < 2_000_000
    assert 1 <= len(options_of(found)) <= LAYERS
    assert len(found["table"]["rows"]) == len(options_of(found))


def test_maps_are_the_layers_outputs_strongest_first() -> None:
    subject = opened("lenet5-modern", layer="c1", example="1")
    with capture(subject.model, "features", "c1") as seen, torch.no_grad():
        subject.model(subject.inputs[0][1:2])
    y = seen["features"]["c1"][0]  # (6, 28, 28)
    first, *maps = draw_features(subject)["drawings"][0]["tiles"]
    assert first["label"] == "input"
    assert first["image"].startswith("data:image/png")
    order = y.abs().mean((1, 2)).argsort(descending=True).tolist()
    assert [int(tile["label"]) for tile in maps] == order
    for tile, k in zip(maps, order, strict=True):
        assert torch.allclose(torch.tensor(tile["values"]), y[k], rtol=1e-3, atol=1e-6)


def test_large_maps_are_means_over_areas() -> None:
    subject = opened("resnet18", layer="conv1")
    x = subject.inputs[0][:1]
    y = F.conv2d(x, subject.model.get_submodule("conv1").weight, stride=2, padding=3).detach()[0]  # (64, 32, 32)
    tile = draw_features(subject)["drawings"][0]["tiles"][1]
    expected = F.adaptive_avg_pool2d(y[int(tile["label"])][None], (28, 28))[0]
    assert torch.allclose(torch.tensor(tile["values"]), expected, rtol=1e-3, atol=1e-5)


def test_signals_are_channels_by_steps() -> None:
    drawing = draw_features(opened("cnn1d", layer="conv2"))["drawings"][-1]
    assert drawing["kind"] == "matrix"
    assert (len(drawing["rows"]), len(drawing["columns"])) == (MAPS, 10)


def test_tokens_of_a_transformer_are_maps_of_patches() -> None:
    subject = opened("vit-base/16", layer="blocks.0")
    components, lengths = draw_features(subject)["drawings"]
    with capture(subject.model, "features", "blocks.0") as seen, torch.no_grad():
        subject.model(subject.inputs[0][:1])
    z = seen["features"]["blocks.0"][0, 1:]  # (4, D), without the class token
    assert torch.allclose(torch.tensor(lengths["tiles"][0]["values"]).flatten(), z.norm(dim=1), rtol=1e-3)
    first = torch.tensor(components["tiles"][1]["values"]).flatten()
    centred = z - z.mean(0)
    variance = torch.linalg.svdvals(centred)[0].square()
    assert first.square().sum() == pytest.approx(variance.item(), rel=1e-2)
    assert abs(first.sum().item()) < 1e-3 * first.abs().sum().item() + 1e-4


def test_every_channel_that_is_silent_is_counted() -> None:
    subject = opened("lenet5-modern", layer="c3")
    with torch.no_grad():
        layer: Any = subject.model.get_submodule("c3")
        layer.weight[:4], layer.bias[:4] = 0, 0
    assert draw_features(subject)["table"]["rows"][0][3] == pytest.approx(4 / 16)


def test_words_stand_over_their_windows(tmp_path: Path) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} film number {i % 7}\t{i % 2}" for i in range(60)]
    path = tmp_path / "films.tsv"
    path.write_text("text\tlabel\n" + "\n".join(rows), encoding="utf-8")
    run = cutaway.train("textcnn", str(path), text="text", target="label", epochs=1, out=tmp_path / "run")
    found = draw_features(open_run(run, options={"layer": "convs.0"}))
    columns = found["drawings"][-1]["columns"]
    assert any("film number" in column for column in columns)
    assert columns[0].startswith("· ·")


def test_a_run_shows_its_own_images(tmp_path: Path) -> None:
    run = cutaway.train("lenet5-modern", "digits", epochs=1, out=tmp_path / "run")
    found = draw_features(open_run(run))
    assert len(options_of(found)) >= 2
    with pytest.raises(UnknownName, match="layer with maps 'c2'"):
        draw_features(open_run(run, options={"layer": "c2"}))
    with pytest.raises(SettingError, match="Invalid example=8"):
        draw_features(open_run(run, options={"example": "8"}))


def test_a_large_model_is_drawn_from_little() -> None:
    found = draw_features(open_preset("resnet18", {"num_classes": 3}, count=1))
    names = [option["name"] for option in options_of(found)]
    assert (names[0], names[-1]) == ("conv1", "layer4")


def test_padding_of_a_batch_is_left_out() -> None:
    model, (tokens, mask) = small("textcnn")
    mask = mask.clone()
    mask[1, 4:] = False
    subject = open_model(model, tokens.where(mask, 0), mask)
    whole, short = (
        draw_features(dataclasses.replace(subject, options={"layer": "convs.0", "example": i}))["drawings"][-1]
        for i in "01"
    )
    assert len(whole["columns"]) - len(short["columns"]) == 3


def drawn_channels(found: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tiles of the input's channels, as pixels (H, W) by name."""
    drawing = found["drawings"][0]
    if not drawing.get("title", "").startswith("Input:"):
        return {}
    return {tile["label"]: png_pixels(tile["image"]) for tile in drawing["tiles"]}


def png_pixels(url: str) -> torch.Tensor:
    image = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))
    return torch.from_numpy(np.array(image))


def photos(folder: Path, *, grey: bool = False) -> Path:
    """Two classes of images, 20 × 16, with different values in red, green and blue."""
    draw = np.random.default_rng(0)
    for k in range(24):
        name = ("a", "b")[k % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 255, (16, 20) if grey else (16, 20, 3)).astype(np.uint8)
        if not grey:
            pixels[:, :, 0] //= 4
        Image.fromarray(pixels).save(folder / name / f"{k}.png")
    return folder


def test_the_channels_of_a_photo_are_its_red_green_and_blue(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    run = cutaway.train("simplecnn", folder, epochs=1, image_size=16, out=tmp_path / "run", tensorboard=False)
    photo = folder / "a" / "0.png"
    found = drawn_channels(draw_features(open_run(run, [photo])))
    pixels = torch.from_numpy(np.array(Image.open(photo)))
    assert list(found) == ["red", "green", "blue"]
    for k, shown in enumerate(found.values()):
        assert torch.equal(shown, pixels[:, :, k])


def test_a_grey_image_has_no_channels_beside_itself_and_a_colour_image_is_shown_in_grey(tmp_path: Path) -> None:
    run = cutaway.train(
        "lenet5-modern", photos(tmp_path / "grey", grey=True), epochs=1, out=tmp_path / "run", tensorboard=False
    )
    assert not drawn_channels(draw_features(open_run(run)))
    photo = photos(tmp_path / "photos") / "a" / "0.png"
    found = drawn_channels(draw_features(open_run(run, [photo])))
    assert list(found) == ["gray"]
    assert torch.equal(found["gray"], torch.from_numpy(np.array(Image.open(photo).convert("L"))))


def test_channels_without_an_image_share_one_range() -> None:
    model, (x, *_) = small("resnet18")
    x[0, 1] = x[0].max() + 1  # green is brighter than everything else
    found = drawn_channels(draw_features(open_model(model, x)))
    assert list(found) == ["red", "green", "blue"]
    assert found["green"].eq(255).all()
    assert found["red"].max() < 255
    scaled = 255 * (x[0, 2] - x[0].min()) / (x[0].max() - x[0].min())
    assert torch.allclose(found["blue"].float(), scaled, atol=0.51)
