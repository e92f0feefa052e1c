"""cutaway quantize: a run in, one of integers out, which every command opens, and what cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import cutaway
from cutaway.apps.cli import main
from cutaway.checkpoints.saving import load_model, save_model
from cutaway.models.registry import preset
from cutaway.nn.low_precision import quantization_scheme
from cutaway.nn.mixed_precision import HalfConv2d
from cutaway.nn.quantized import QuantizedConv2d, QuantizedLinear, dequantize_groups, quantize_groups

SMALL: dict[str, Any] = {"batch_size": 32, "tensorboard": False, "threads": 1}


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    shape = {"model.layers": (1, 1), "model.width": 8, "model.shortcut": "B", "max_samples": 400, "epochs": 2}
    return cutaway.train("resnet20", "digits", out=tmp_path_factory.mktemp("resnet") / "run", **SMALL, **shape)


@pytest.fixture(scope="module")
def small(resnet: cutaway.Run, tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.quantize(resnet, tmp_path_factory.mktemp("small") / "run", calibration=64)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    folder = tmp_path_factory.mktemp("gpt2")
    (folder / "text.txt").write_text("the cat sat on the mat and the dog ran after the cat . " * 150)
    shape = {"model.layers": 1, "model.heads": 2, "model.dim": 32, "length": 16, "max_steps": 60, "lr": 1e-2}
    return cutaway.train("gpt2", str(folder / "text.txt"), out=folder / "run", **SMALL, **shape)


def test_batch_norms_are_folded_and_the_score_stays(resnet: cutaway.Run, small: cutaway.Run) -> None:
    model = small.model
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules())
    assert sum(isinstance(m, QuantizedConv2d) for m in model.modules()) == 6
    assert small.evaluate()["accuracy"].value >= resnet.evaluate()["accuracy"].value - 0.05
    assert small.evaluate()["loss"].value == pytest.approx(resnet.evaluate()["loss"].value, abs=0.05)
    kept = json.loads((small.folder / "evaluation.json").read_text())
    assert kept["metrics"]["accuracy"] == small.evaluate()["accuracy"].to_json()
    files = [(run.folder / "model" / "model.safetensors").stat().st_size for run in (resnet, small)]
    assert files[1] < 0.6 * files[0]  # of so small a network half is names
    assert (small.folder / "report.html").is_file()
    assert small.about["quantized"]["calibration"] == 64


def test_it_is_opened_again_bit_for_bit(small: cutaway.Run, tmp_path: Path) -> None:
    x = torch.randn(3, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(cutaway.load(small.folder).model(x), cutaway.Run(small.folder).model(x))
        bare = cutaway.load(small.folder, model="resnet20")
        assert torch.equal(bare(x), cutaway.load(small.folder).model(x))
    save_model(bare, tmp_path, preset("resnet20"))
    with torch.no_grad():
        assert torch.equal(load_model(tmp_path)[0](x), bare(x))


def test_both_models_are_shown(resnet: cutaway.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", str(resnet.folder), str(tmp_path / "q"), "--json", "calibration=32"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["score"]["value"] == resnet.evaluate()["accuracy"].value
    assert found["after"]["bytes"] < found["before"]["bytes"]
    assert set(found["after"]["milliseconds"]) == {"1", "32"}


@pytest.mark.parametrize(("bits", "kinds"), [(8, {"dynamic", "stored"}), (4, {"stored"})])
def test_a_language_model_writes_on(gpt2: cutaway.Run, tmp_path: Path, bits: int, kinds: set[str]) -> None:
    made = cutaway.quantize(gpt2, tmp_path / "q", bits=bits, method="dynamic" if bits == 8 else "auto")
    scheme = quantization_scheme(made.model)
    assert scheme is not None
    assert set(scheme["layers"].values()) == kinds
    assert any(isinstance(m, QuantizedLinear) for m in made.model.modules()) == (bits == 8)
    assert made.evaluate()["loss"].value == pytest.approx(gpt2.evaluate()["loss"].value, abs=0.1)
    assert main(["generate", str(made.folder), "--prompt", "the cat", "--count", "8", "--seed", "1"]) == 0
    weight, now = gpt2.model.embedding.weight, made.model.embedding.weight
    step = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((weight - now).abs() <= 0.51 * step).all())  # embeddings have 8 bits whatever the others have
    if bits == 4:  # rounded once, though a quantized model is written as its integers again
        weight = gpt2.model.blocks[0].mlp.fc1.weight.detach()
        once = dequantize_groups(*quantize_groups(weight, 32), 32, weight.shape)
        torch.testing.assert_close(made.model.blocks[0].mlp.fc1.weight, once, rtol=1e-6, atol=0)


def test_it_learns_on_with_rounded_numbers(
    gpt2: cutaway.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    for settings in (["qat=1"], []):
        assert main(["quantize", str(gpt2.folder), str(tmp_path / "full"), "bits=4", *settings]) == 2
        assert "nothing in it is overwritten" in " ".join(capsys.readouterr().err.split())
    made = cutaway.quantize(gpt2, tmp_path / "q", bits=4, qat=1)
    assert made.about["quantized"]["qat"] == 1
    assert made.about["quantized"]["from"] == str(gpt2.folder)
    assert (made.about["settings"]["qat"], made.about["settings"]["qat_group"]) == ("weight-only", 32)
    weight, scheme = made.model.blocks[0].mlp.fc1.weight.detach(), quantization_scheme(made.model)
    assert scheme is not None
    assert scheme["bits"] == 4
    assert not torch.allclose(weight, gpt2.model.blocks[0].mlp.fc1.weight, atol=0.01)  # it has learned on
    assert made.evaluate()["loss"].value < gpt2.evaluate()["loss"].value + 0.1
    assert {row[0] for row in (made.folder / "metrics.csv").read_text().splitlines()[1:]} == {"1"}  # of that epoch


def test_recurrent_layers_are_stored(tmp_path: Path) -> None:
    folder = tmp_path / "text.txt"
    folder.write_text("abcabdabe" * 300)
    shape = {"model.hidden_dim": 16, "length": 16, "max_steps": 10}
    run = cutaway.train("lstm", str(folder), out=tmp_path / "run", **SMALL, **shape)
    made = cutaway.quantize(run, tmp_path / "q")
    assert type(made.model.rnn) is type(run.model.rnn)
    assert not torch.equal(made.model.rnn.weight_hh_l0, run.model.rnn.weight_hh_l0)
    torch.testing.assert_close(made.model.rnn.weight_hh_l0, run.model.rnn.weight_hh_l0, atol=0.01, rtol=0)
    assert made.about["quantized"]["method"] == "weight-only"  # its linear layer is too small to be faster as integers


def test_sixteen_bits(
    resnet: cutaway.Run, gpt2: cutaway.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", str(resnet.folder), str(tmp_path / "q"), "method=bfloat16"]) == 0
    assert "its original size." in capsys.readouterr().err
    made = cutaway.Run(tmp_path / "q")
    assert sum(isinstance(m, HalfConv2d) for m in made.model.modules()) == 6
    assert made.evaluate()["loss"].value == pytest.approx(resnet.evaluate()["loss"].value, abs=0.05)
    assert torch.equal(made.model.conv1.weight, resnet.model.conv1.weight.bfloat16().float())
    words = cutaway.quantize(gpt2, tmp_path / "w", method="float16")
    assert torch.equal(words.model.embedding.weight, gpt2.model.embedding.weight.half().float())
    sizes = [(run.folder / "model" / "model.safetensors").stat().st_size for run in (gpt2, words)]
    assert sizes[1] < 0.65 * sizes[0]  # of so small a network the names are a part


def test_a_module_of_ones_own(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    run = cutaway.train(net, "digits", out=tmp_path / "run", epochs=1, max_samples=200, **SMALL)
    made = cutaway.quantize(cutaway.load(run.folder, model=net), tmp_path / "q", method="dynamic")
    assert made.evaluate()["loss"].value == pytest.approx(run.evaluate()["loss"].value, abs=0.05)
    assert type(net[1]) is torch.nn.Linear  # the module that was handed over stays as it is


@pytest.mark.parametrize(
    ("of", "words", "said"),
    [
        ("resnet", ["OUT", "bits=3"], "must be 8, or 4"),
        ("resnet", ["OUT", "method=static", "bits=4"], "needs method=weight-only"),
        ("resnet", ["OUT", "method=float16", "bits=4"], "has 16 bits: leave bits out"),
        ("resnet", ["OUT", "method=bfloat16", "qat=1"], "only for integer methods"),
        ("resnet", ["OUT", "method=slow"], "static, dynamic, weight-only"),
        ("gpt2", ["OUT", "method=static"], "no convolution. Use method=weight-only"),
        ("small", ["OUT"], "is already quantized (static, 8 bits)"),
        ("resnet", ["OUT", "sparsity=1"], "sparsity"),
        ("resnet", [], "Missing run or new folder"),
    ],
)
def test_models_that_cannot_be_quantized_are_rejected(
    of: str, words: list[str], said: str, request: pytest.FixtureRequest, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = request.getfixturevalue(of)
    typed = [str(tmp_path / "x") if word == "OUT" else word for word in words]
    assert main(["quantize", str(run.folder), *typed]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x").exists()


def test_without_its_data_a_static_one_is_refused_and_the_file_alone_is_made(
    gpt2: cutaway.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = tmp_path / "images"
    for name in ("a", "b"):
        (images / name).mkdir(parents=True)
        for i in range(6):
            Image.new("L", (16, 16), 100 * (name == "b") + i).save(images / name / f"{i}.png")
    run = cutaway.train("lenet5-modern", str(images), out=tmp_path / "run", epochs=1, image_size=32, **SMALL)
    shutil.rmtree(images)
    assert main(["quantize", str(run.folder), str(tmp_path / "x")]) == 2
    assert "Restore it, or use method=weight-only" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x").exists()
    assert main(["quantize", str(run.folder), str(tmp_path / "y"), "method=weight-only"]) == 0
    assert "score and time are not measured" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "y" / "evaluation.json").exists()


def test_integers_are_not_learned_from_nor_converted(
    small: cutaway.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> str:
        assert main([*words]) == 2
        return " ".join(capsys.readouterr().err.split())

    folder, before = str(small.folder), small.evaluate()["loss"].value
    assert "begin with the run that it was made of" in said("train", "resnet20", "digits", f"weights={folder}")
    assert "is quantized and cannot be trained further" in said("train", "--resume", folder)
    assert "have no form elsewhere" in said("convert", folder, str(tmp_path / "x.pth"), "--to", "torchvision")
    assert cutaway.load(folder).evaluate()["loss"].value == before
