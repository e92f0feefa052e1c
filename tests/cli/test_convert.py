"""cutaway convert."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cutaway import create_model
from cutaway.checkpoints.huggingface.folders import write_folder
from cutaway.checkpoints.saving import load_model, save_model
from cutaway.models.registry import preset

from .conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that holds a resnet18."""
    torch.manual_seed(0)
    save_model(create_model("resnet18", num_classes=3), tmp_path / "run" / "model", preset("resnet18"))
    return tmp_path / "run"


def test_there_and_back(cli: Cli, folder: Path, tmp_path: Path) -> None:
    answer = cli("convert", folder, tmp_path / "out.pth", "--to", "torchvision")
    assert answer.status == 0
    assert answer.out.splitlines()[1].split() == ["conv1.weight", "conv1.weight"]
    assert "122 tensors of resnet18" in answer.said
    state = torch.load(tmp_path / "out.pth", weights_only=True)
    assert state["fc.weight"].shape == (3, 512)

    answer = cli("convert", tmp_path / "out.pth", tmp_path / "back", "--to", "cutaway", "--model", "resnet18")
    assert answer.status == 0
    back, first = load_model(tmp_path / "back")[0].state_dict(), load_model(folder / "model")[0].state_dict()
    assert all(torch.equal(back[k], first[k]) for k in first)


def test_the_key_map_is_printed_where_names_differ(cli: Cli, tmp_path: Path) -> None:
    model = create_model("densenet121", num_classes=3)
    save_model(model, tmp_path / "dense", preset("densenet121"))
    there = cli("convert", tmp_path / "dense", tmp_path / "out.safetensors", "--to", "torchvision")
    back = cli("convert", tmp_path / "out.safetensors", tmp_path / "back", "--to", "cutaway", "--model", "densenet121")
    assert (there.status, back.status) == (0, 0)
    pairs = [line.split() for line in there.out.splitlines()[1:]]
    assert pairs[0] == ["conv0.weight", "features.conv0.weight"]
    assert pairs[-1] == ["classifier.bias", "classifier.bias"]
    assert len(pairs) == len(model.state_dict())
    again = [line.split() for line in back.out.splitlines()[1:]]
    assert sorted([theirs, ours] for ours, theirs in pairs) == sorted(again)


def test_fields_missing_in_an_old_file_are_reported(cli: Cli, folder: Path, tmp_path: Path) -> None:
    state = load_model(folder / "model")[0].state_dict()
    torch.save({k: v for k, v in state.items() if "num_batches" not in k}, tmp_path / "old.pth")
    answer = cli("convert", tmp_path / "old.pth", tmp_path / "new", "--to", "cutaway", "--model", "resnet18")
    assert answer.status == 0
    assert "20 counters num_batches_tracked" in answer.said


def test_nothing_is_written_over(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out.pth").write_text("mine")
    answer = cli("convert", folder, tmp_path / "out.pth", "--to", "torchvision")
    assert answer.status == 2
    assert "already exists" in answer.said
    assert (tmp_path / "out.pth").read_text() == "mine"
    weights = folder / "model" / "model.safetensors"
    before = weights.read_bytes()
    answer = cli("convert", folder, weights, "--to", "torchvision", "--overwrite")
    assert answer.status == 2
    assert "and is not overwritten" in answer.said
    assert weights.read_bytes() == before
    assert cli("convert", folder, tmp_path / "out.pth", "--to", "torchvision", "--overwrite").status == 0
    assert torch.load(tmp_path / "out.pth", weights_only=True)


def test_what_cannot_be_converted_is_rejected_in_words(cli: Cli, folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.pth"
    torch.save(create_model("resnet18").state_dict(), state)
    unknown = tmp_path / "unknown.pth"
    torch.save({"weight": torch.zeros(3)}, unknown)
    save_model(create_model("resnet20"), tmp_path / "small", preset("resnet20"))
    shutil.copytree(folder / "model", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\x80\x04pickle")
    out = tmp_path / "out.pth"
    for words, said in (
        ((folder, out, "--to", "huggingface"), "transformers has no network like resnet18"),
        ((tmp_path / "absent", out, "--to", "torchvision"), "There is no file or folder"),
        ((state, out, "--to", "torchvision"), "is a file already"),
        ((folder, out, "--to", "cutaway"), "one of Cutaway's folders already"),
        ((state, out, "--to", "cutaway"), "its tensors are resnet18's: add --model resnet18."),
        ((unknown, out, "--to", "cutaway"), "does not say which network it is for: add --model NAME."),
        ((state, out, "--to", "cutaway", "--model", "resnet50-v1"), "read them as resnet50"),
        ((state, out, "--to", "cutaway", "--model", "resnet34"), "the first layer1.2.conv1.weight"),
        ((tmp_path / "small", out, "--to", "torchvision"), "torchvision has no network like this ResNet"),
        ((folder, out, "--to", "torchvision", "--model", "resnet34"), "holds a resnet18, not a resnet34"),
        ((tmp_path / "broken", out, "--to", "torchvision"), "is a pickle"),
        ((folder, tmp_path / "out.bin", "--to", "torchvision"), ".pth, .pt, .safetensors"),
    ):
        answer = cli("convert", *words)
        assert (answer.status, answer.out) == (2, ""), words
        assert said in answer.said, words
        assert not out.exists()


# --- Hugging Face's folders ---------------------------------------------------------------------------------------

SMALL = {"vocab_size": 40, "context_length": 8, "dim": 12, "layers": 2, "heads": 2}


@pytest.fixture
def hugging(tmp_path: Path) -> Path:
    """A small GPT-2 as transformers has it."""
    torch.manual_seed(0)
    write_folder(create_model("gpt2", **SMALL), "gpt2", tmp_path / "hf")
    return tmp_path / "hf"


def test_a_hugging_face_folder_there_and_back(cli: Cli, hugging: Path, tmp_path: Path) -> None:
    there = cli("convert", hugging, tmp_path / "ours", "--to", "cutaway")
    back = cli("convert", tmp_path / "ours", tmp_path / "back", "--to", "huggingface")
    assert (there.status, back.status) == (0, 0)
    assert ["transformer.wte.weight", "embedding.weight"] in [line.split() for line in there.out.splitlines()]
    assert ["embedding.weight", "transformer.wte.weight"] in [line.split() for line in back.out.splitlines()]
    assert "It is read as gpt2 with vocab_size=40, context_length=8, dim=12, layers=2, heads=2." in there.said
    assert "28 tensors of gpt2" in there.said
    first, again = (load_file(folder / "model.safetensors") for folder in (hugging, tmp_path / "back"))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert json.loads((hugging / "config.json").read_text()) == json.loads((tmp_path / "back/config.json").read_text())
    named = cli("convert", hugging, tmp_path / "medium", "--to", "cutaway", "--model", "gpt2-medium")
    assert named.status == 0
    assert "of gpt2-medium" in named.said


def test_parts_of_one_tensor_are_named_together(cli: Cli, tmp_path: Path) -> None:
    model = create_model("bert-base-uncased", **SMALL)
    save_model(model, tmp_path / "ours", preset("bert-base-uncased"))
    answer = cli("convert", tmp_path / "ours", tmp_path / "hf", "--to", "huggingface")
    names = [f"bert.encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key", "value")]
    assert f"blocks.0.attention.qkv.weight{' ' * 2}" in answer.out
    assert ", ".join(names) in answer.out


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def of_another_type(folder: Path) -> None:
    change(folder, model_type="reformer")


def with_another_value(folder: Path) -> None:
    change(folder, activation_function="swish")


def with_another_size(folder: Path) -> None:
    change(folder, n_head=5)


def with_words_for_numbers(folder: Path) -> None:
    change(folder, n_layer="two")


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def named_as_if_not_pickled(folder: Path) -> None:
    torch.save({"a": torch.zeros(1)}, folder / "model.safetensors")


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def without_a_shard(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def with_a_tensor_cut(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"][:-3].clone()
    save_file(tensors, folder / "model.safetensors")


def without_a_block(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in tensors.items() if ".h.1." not in k}, folder / "model.safetensors")


def change(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without_config, "has no config.json, which says what network it holds"),
        (of_another_type, 'model_type "reformer", which is not here. Supported are: albert, bart, bert,'),
        (with_another_value, 'activation_function="swish", which the network here does not have: it knows "gelu_new"'),
        (with_another_size, "Invalid n_head=5: must be at least 1 and a divisor of n_embd=12"),
        (with_words_for_numbers, 'n_layer="two", where a whole number belongs'),
        (pickled, "as a pickle alone (pytorch_model.bin). Reading one can run any program"),
        (named_as_if_not_pickled, "model.safetensors is a pickle"),
        (without_weights, "has a config.json and no weights: model.safetensors is missing"),
        (without_a_shard, "lacks 1 of the 2 files that its model.safetensors.index.json names"),
        (cut_short, "model.safetensors is not a complete safetensors file: it is truncated or damaged"),
        (with_a_tensor_cut, "the first transformer.wte.weight: (37, 12) where the network has (40, 12)"),
        (without_a_block, "12 of the network's 28 tensors are missing, the first transformer.h.1."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_damaged_folder_is_rejected_in_words(
    cli: Cli, hugging: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(hugging)
    answer = cli("convert", hugging, tmp_path / "ours", "--to", "cutaway")
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.said
    assert not (tmp_path / "ours").exists()
    if damage in (of_another_type, with_another_value, with_another_size, pickled, without_weights, without_a_shard):
        (tmp_path / "t.tsv").write_text("text\tlabel\na b\tx\nc d\ty\n")
        answer = cli("train", "gpt2", tmp_path / "t.tsv", "text=text", "target=label", f"weights={hugging}")
        assert answer.status == 2
        assert said in answer.said


def test_a_tokenizer_of_another_size_than_the_weights_is_rejected(cli: Cli, hugging: Path, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "a b\tx\nc d\ty\n" * 20)
    answer = cli("train", "gpt2", tmp_path / "t.tsv", "text=text", "target=label", f"weights={hugging}")
    assert (answer.status, answer.out) == (2, "")
    assert "hf has vectors of 40 tokens" in answer.said
    assert "the tokenizer that was fitted on t has 6: they do not belong together" in answer.said
    assert not (tmp_path / "runs").exists()


def test_what_is_there_already_or_has_no_such_form(cli: Cli, hugging: Path, tmp_path: Path) -> None:
    save_model(create_model("gpt2", **SMALL), tmp_path / "ours", preset("gpt2"))
    out = tmp_path / "out"
    for words, said in (
        ((hugging, out, "--to", "huggingface"), "is a Hugging Face folder already"),
        ((hugging, out, "--to", "cutaway", "--model", "bert-base-uncased"), "holds a gpt2, not a bert-base-uncased"),
        ((hugging / "model.safetensors", out, "--to", "huggingface"), "is a file already"),
        ((hugging, out, "--to", "torchvision"), "torchvision has no network like this GPT2"),
        ((tmp_path / "ours", hugging, "--to", "huggingface"), "already exists"),
    ):
        answer = cli("convert", *words)
        assert (answer.status, answer.out) == (2, ""), words
        assert said in answer.said, words
        assert not out.exists()
