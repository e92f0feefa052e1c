"""Images as tokens after their captions: inputs, padding, prompts, saved preprocessing, images without captions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import ImageSpec, ImageTokens, from_json, to_json
from cutaway.data.dataset_base import DataSet
from cutaway.data.images.text_to_image import CaptionedTokenPreprocessing, CaptionedTokenSplit
from cutaway.data.modalities import preprocessing_from_json
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

WORDS = ("a dog", "a cat asleep", "two birds in flight", "an empty street")


def folder(root: Path, count: int = 20, captions: int = 2) -> Path:
    """`count` grey images of 4×5 pixels of three levels, each with so many captions; in files it has a train folder."""
    for split, number in (("train", count), ("test", 4)):
        lines = []
        (root / split).mkdir(parents=True)
        for i in range(number):
            levels = np.random.default_rng(100 * number + i).integers(0, 3, (4, 5)).astype(np.uint8) * 100
            Image.fromarray(levels).save(root / split / f"{i:02}.png")
            lines += [f"{i:02}.png\t{WORDS[(i + k) % len(WORDS)]}" for k in range(captions)]
        (root / split / "captions.tsv").write_text("\n".join(lines) + "\n")
    return root


def opened(source: object, **settings: object) -> tuple[DataSet, CaptionedTokenPreprocessing]:
    """The data set as tokens, and its preprocessing."""
    found = open_data(source, DataSettings(**settings), targets=(ImageTokens,))  # type: ignore[arg-type]
    assert isinstance(found.preprocessing, CaptionedTokenPreprocessing)
    return found, found.preprocessing


def test_a_batch_is_the_caption_the_start_token_and_the_pixels(tmp_path: Path) -> None:
    data, known = opened(folder(tmp_path))
    target = known.target
    assert (target.outputs, target.names, target.caption, target.prefix) == (3, (), 4, 5)
    assert target.no_class == 3
    assert target.words == len(known.tokenizer)
    assert target.vocab_size == 4 + target.words
    split = data.splits["train"]
    assert isinstance(split, CaptionedTokenSplit)
    assert len(split) == 34  # 17 images with two captions each, three images are in val
    order = [torch.tensor([5, 0]), torch.tensor([33])]
    for rows, ((inputs,), tokens) in zip(order, split.batches(order)):
        assert (inputs.shape, tokens.shape) == ((len(rows), 24), (len(rows), 20))
        assert torch.equal(inputs[:, 5:], tokens[:, :-1])
        assert (inputs[:, 4] == 3).all()
        for row, pixels, i in zip(inputs, tokens, rows.tolist()):
            caption = [word for word in known.words(row[:4]) if word]
            assert " ".join(caption) == split.captions[i]
            assert (row[len(caption) : 4] == 4).all()  # padding, the token after the start token
            assert np.array_equal(known.levels(pixels[None])[0, 0].numpy(), np.asarray(split.image(i)))
            assert split.row(i) == {"caption": split.captions[i]}
    assert (split.name(0), split.name(1), split.captions[0]) == (split.name(1), split.name(0), WORDS[0])


def test_other_splits_use_each_image_once_and_cut_longer_captions(tmp_path: Path) -> None:
    root = folder(tmp_path)
    lines = (root / "test" / "captions.tsv").read_text().splitlines()
    (root / "test" / "captions.tsv").write_text("\n".join([f"{lines[0]} sleeps in a red basket", *lines[1:]]) + "\n")
    data, known = opened(root)
    test = data.splits["test"]
    assert isinstance(test, CaptionedTokenSplit)
    assert len(test) == 4
    assert len(data.splits["val"]) == 3
    (inputs,), _ = next(iter(test.batches([torch.arange(4)])))
    words = known.words(inputs[0, :4])
    assert (words[:2], words[3]) == (["a", "dog"], "in")
    assert inputs[0, 2] == known.target.no_class + 1 + known.tokenizer.unknown  # type: ignore[operator]
    assert any("use each image once, with its first caption" in note for note in data.notes)


def test_prompts_are_read_as_captions(tmp_path: Path) -> None:
    _, known = opened(folder(tmp_path))
    prompt = known.prompts(None, 3, "a cat asleep")
    assert prompt.shape == (3, 5)
    assert known.words(prompt[2, :4]) == ["a", "cat", "asleep", ""]
    assert prompt[0, 4] == known.target.no_class
    assert known.prompts(None, 2)[1].tolist() == [4, 4, 4, 4, 3]
    assert known.unknown("a purple cat") == ["purple"]
    for text, said in (
        ("two birds in flight asleep", "has 5 tokens, and the longest caption in training has 4"),
        ("purple lions", "none of its words is in the captions of training"),
        (" ", "has no words"),
    ):
        with pytest.raises(SettingError, match=said):
            known.prompts(None, 1, text)


def test_the_preprocessing_is_saved(tmp_path: Path) -> None:
    _, known = opened(folder(tmp_path))
    document = json.loads(json.dumps(known.to_json()))
    loaded = preprocessing_from_json(document)
    assert isinstance(loaded, CaptionedTokenPreprocessing)
    assert (loaded.spec, loaded.palette) == (known.spec, known.palette)
    assert torch.equal(loaded.encode(WORDS), known.encode(WORDS))
    spec = document["spec"]
    for changed, said in (
        ({"spec": spec | {"target": spec["target"] | {"words": 3}}}, r"a tokenizer of \d+ tokens for 3 words"),
        ({"spec": spec | {"target": spec["target"] | {"caption": 0}}}, "in captions of 0"),
        ({"form": "masks"}, "is missing|its form is 'masks'"),
        ({"form": None}, "has the form 'tokens' or 'captioned-tokens'"),
    ):
        with pytest.raises(DataError, match=said):
            preprocessing_from_json(document | changed)


def test_a_spec_that_was_saved_without_captions_has_none() -> None:
    spec = ImageSpec(1, 2, 2, ImageTokens(("a",), 4, cells=(1, 1)))
    document = to_json(spec)
    assert from_json(document) == spec
    for key in ("words", "caption"):
        del document["target"][key]
    assert from_json(document) == spec


def test_images_without_captions_have_padding_alone(tmp_path: Path) -> None:
    data, known = opened(folder(tmp_path))
    split = known.examples([tmp_path / "test" / "00.png"])
    (inputs,), tokens = next(iter(split.batches([torch.arange(1)])))
    assert inputs[0, :5].tolist() == [4, 4, 4, 4, 3]
    again = known.labelled(tmp_path / "test")
    (with_caption,), same = next(iter(again.batches([torch.arange(1)])))
    assert torch.equal(same, tokens)
    assert known.words(with_caption[0, :4])[:2] == ["a", "dog"]
    adopted = known.adopted(data.splits["test"], known)
    assert torch.equal(next(iter(adopted.batches([torch.arange(4)]))).inputs[0][:1], with_caption)
    (tmp_path / "test" / "captions.tsv").unlink()
    assert len(known.labelled(tmp_path / "test")) == 4


def test_settings_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    root = folder(tmp_path)
    for key, value in (("flip", True), ("crop", 2)):
        with pytest.raises(SettingError, match=rf"{key}=.* varies images"):
            opened(root, **{key: value})
    with pytest.raises(SettingError, match="tokenizer=words is for images with captions, and these have none"):
        open_data("digits", DataSettings(tokenizer="words"), targets=(ImageTokens,))
    _, known = opened(root, tokenizer="characters")
    assert known.target.caption == len(WORDS[2])
    data, short = opened(root, length=3)
    assert short.target.caption == 3
    assert any("captions of more than length=3" in note for note in data.notes)


def test_a_named_set_with_captions_is_drawn() -> None:
    data, known = opened("digit_captions_small", max_samples=60)
    (inputs,), tokens = next(iter(data.splits["test"].batches([torch.arange(3)])))
    assert tokens.shape == (3, 24 * 24)
    assert inputs.shape == (3, known.target.caption + 24 * 24)
