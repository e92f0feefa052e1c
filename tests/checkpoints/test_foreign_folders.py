"""Folders in Hugging Face's form that are broken, or meant to break: rejected in words that name file and key, before
anything is built of what they claim."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.huggingface.folders import read_folder, write_folder
from cutaway.checkpoints.saving import load_model, read_tensors, save_model, write_tensors
from cutaway.core.errors import CutawayError, FileError, ModelError
from cutaway.data.text.tokenizer_files import open_tokenizer
from cutaway.models.registry import create_model, preset
from cutaway.training.pretrained_weights import find_weights, load_pretrained

SMALL = {"vocab_size": 30, "context_length": 9, "dim": 16, "layers": 2, "heads": 2}
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small GPT-2."""
    write_folder(create_model("gpt2", **SMALL), "gpt2", tmp_path / "hf")
    return tmp_path / "hf"


def changed(folder: Path, **fields: Any) -> Path:
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(document | fields), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_head": 3}, "config.json: Invalid n_head=3: must be at least 1 and a divisor of n_embd=16."),
        ({"n_layer": 0}, "config.json: Invalid n_layer=0: must be at least 1."),
        ({"n_layer": 10**6}, "config.json: n_layer=1000000 does not fit the weights in this folder"),
        ({"n_positions": 10**9}, "config.json: n_positions=1000000000 does not fit the weights in this folder"),
        ({"vocab_size": 10**300}, "config.json: vocab_size=1000000000"),
        ({"resid_pdrop": float("nan")}, "config.json: resid_pdrop=NaN, where a number belongs."),
        ({"resid_pdrop": 2}, "config.json: Invalid resid_pdrop=2.0"),
        ({"n_embd": "16"}, 'config.json: n_embd="16", where a whole number belongs.'),
        ({"model_type": ["gpt2"]}, 'config.json has a network of model_type ["gpt2"], which is not here.'),
        ({"architectures": 5}, None),
        (
            {"architectures": ["GPT2ForSequenceClassification"], "num_labels": 10**9},
            "num_labels=1000000000 does not fit the weights",
        ),
        ({"architectures": ["GPT2ForSequenceClassification"], "id2label": 7, "num_labels": "x"}, "num_labels"),
    ],
    ids=str,
)
def test_what_config_says_is_rejected_by_file_and_key(folder: Path, fields: dict[str, Any], said: str | None) -> None:
    changed(folder, **fields)
    if said is None:
        assert read_folder(folder).preset.name == "gpt2"
        return
    for read in (read_folder, lambda path: find_weights(str(path), preset("gpt2"))):
        if "model_type" in fields and read is not read_folder:
            continue
        with pytest.raises((ModelError, FileError)) as error:
            read(folder)
        assert said in str(error.value)
        assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("name", "field"), [("t5-small", "num_decoder_layers"), ("bert-base-uncased", "num_hidden_layers")], ids=str
)
def test_layers_are_bounded_by_the_tensors_in_every_family(name: str, field: str, tmp_path: Path) -> None:
    small = {k: v for k, v in SMALL.items() if hasattr(preset(name).config, k)}
    write_folder(create_model(name, **small), name, tmp_path / "hf")
    with pytest.raises(ModelError, match=f"config.json: {field}=1000000 does not fit the weights"):
        read_folder(changed(tmp_path / "hf", **{field: 10**6}))


def test_layers_of_one_block_are_bounded_too(tmp_path: Path) -> None:
    write_folder(create_model("albert-base-v2", embedding_dim=8, **SMALL), "albert-base-v2", tmp_path / "hf")
    assert read_folder(changed(tmp_path / "hf", num_hidden_layers=100)).model.config.layers == 100  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="num_hidden_layers=1000000 does not fit the weights"):
        read_folder(changed(tmp_path / "hf", num_hidden_layers=10**6))


@pytest.mark.parametrize("content", ["null", "3", "[]", '"model_type"', "true"])
def test_a_document_that_is_no_object_is_rejected(folder: Path, content: str, tmp_path: Path) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(CutawayError):
        cutaway.load(folder)
    with pytest.raises(CutawayError):
        convert(folder, tmp_path / "out", to="cutaway")
    save_model(create_model("gpt2", layers=1, dim=8, heads=1, vocab_size=9), tmp_path / "ours", preset("gpt2"))
    (tmp_path / "ours" / "config.json").write_text(content)
    with pytest.raises(FileError, match=r"config\.json: the document is .*, and must be an object"):
        load_model(tmp_path / "ours")


def test_layers_that_a_file_of_ours_asks_for_are_bounded(tmp_path: Path) -> None:
    small = create_model("gpt2", layers=1, dim=8, heads=1, vocab_size=9)
    for change, said in (
        ({"layers": 2**30}, "layers=1073741824 asks for more layers"),
        ({"layers": 10**30}, "layers is 1000000000000000000000000000000"),
        ({"dim": "8"}, "dim is a string, and must be an integer"),
        ({"wide": 3}, "there is no wide"),
    ):
        save_model(small, tmp_path / "ours", preset("gpt2"))
        path = tmp_path / "ours" / "model.safetensors"
        tensors, meta = read_tensors(path)
        meta["config"] |= change
        write_tensors(path, tensors, meta)
        (tmp_path / "ours" / "config.json").write_text(json.dumps(meta))
        with pytest.raises(FileError, match=f"config.json, written by Cutaway .*: {said}"):
            load_model(tmp_path / "ours")


def test_a_deep_document_is_rejected(folder: Path) -> None:
    deep = "[" * 200_000 + "]" * 200_000
    (folder / "tokenizer.json").write_text(deep, encoding="utf-8")
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        open_tokenizer(folder / "tokenizer.json")
    (folder / "config.json").write_text('{"model_type": ' + deep + "}", encoding="utf-8")
    with pytest.raises(CutawayError, match=r"config\.json"):
        read_folder(folder)


def test_ids_of_a_tokenizer_are_bounded(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2, "d": 10**9}, "unk_token": "a"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}), encoding="utf-8")
    with pytest.raises(FileError, match="4 tokens with an id of 1,000,000,000"):
        open_tokenizer(tmp_path / "tokenizer.json")


HEADS = {
    "cut short": lambda data: data[:40],
    "empty": lambda data: b"",
    "longer than the file": lambda data: struct.pack("<Q", 10**12) + data[8:],
    "no JSON": lambda data: data[:8] + b"x" * 20 + data[28:],
    "a shape that is too large": lambda data: data.replace(b'"shape":[16]', b'"shape":[9999999]'),
    "random": lambda data: bytes((7 * i) % 256 for i in range(1000)),
}


@pytest.mark.parametrize("kind", HEADS)
def test_weights_with_a_broken_head_are_rejected(folder: Path, kind: str) -> None:
    file = folder / WEIGHTS
    file.write_bytes(HEADS[kind](file.read_bytes()))
    model = create_model("gpt2", **SMALL)
    for read in (
        lambda: read_folder(folder),
        lambda: load_pretrained(model, preset("gpt2"), str(folder)),
        lambda: find_weights(str(folder), preset("gpt2")),
        lambda: find_weights(str(file), preset("gpt2")),
    ):
        with pytest.raises(FileError):
            read()


# --- numbers that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_weights_that_are_no_numbers_are_rejected_by_name(folder: Path, number: float, tmp_path: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["transformer.h.1.mlp.c_fc.bias"][3] = number
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    said = r"not finite \(NaN or infinity\): 1 of the 64 in transformer\.h\.1\.mlp\.c_fc\.bias"
    with pytest.raises(FileError, match=said):
        cutaway.load(folder)
    with pytest.raises(FileError, match=said):
        convert(folder, tmp_path / "out", "cutaway")
    with pytest.raises(FileError, match=said):
        load_pretrained(create_model("gpt2", **SMALL), preset("gpt2"), str(folder))
    assert not (tmp_path / "out").exists()


def test_weights_of_ours_and_of_torchvision_likewise(tmp_path: Path) -> None:
    model = create_model("resnet18", num_classes=2)
    with torch.no_grad():
        model.get_parameter("layer1.0.conv1.weight")[0, 0, 0, 0] = float("nan")
    save_model(model, tmp_path / "ours", preset("resnet18"))
    torch.save(model.state_dict(), tmp_path / "theirs.pth")
    for read in (
        lambda: load_model(tmp_path / "ours"),
        lambda: load_pretrained(create_model("resnet18", num_classes=2), preset("resnet18"), str(tmp_path / "ours")),
        lambda: convert(tmp_path / "theirs.pth", tmp_path / "out", "cutaway", "resnet18"),
        lambda: load_pretrained(create_model("resnet18"), preset("resnet18"), str(tmp_path / "theirs.pth")),
    ):
        with pytest.raises(FileError, match=r"1 of the 36,864 in layer1\.0\.conv1\.weight"):
            read()


def test_matrices_that_stand_the_other_way_about_are_told_where_they_are_not_square(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    turned = {k: v.t().contiguous() if v.ndim == 2 and ".h." in k else v for k, v in tensors.items()}
    save_file(turned, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(FileError, match="they are transposed, rows for columns, and so may be square ones"):
        read_folder(folder)
