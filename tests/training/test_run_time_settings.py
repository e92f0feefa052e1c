"""Which settings of a training matter when its model runs: each is told from the rest, and is taken from the run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.config import as_text
from cutaway.core.errors import CutawayError
from cutaway.core.files import read_json
from cutaway.data.settings import DataSettings
from cutaway.deploy.export import export
from cutaway.deploy.quantize import quantize
from cutaway.deploy.runtime import ExportedRun
from cutaway.runs import run as running
from cutaway.runs.run import Run
from cutaway.runs.train import train_model
from cutaway.training import trained_run
from cutaway.training.callbacks import Progress
from cutaway.training.config import TrainSettings
from cutaway.views.subject import open_run as open_subject

# Settings by which a model that has learned is run: `evaluate`, `predict` and `export` take them from the run.
RUN_TIME = {
    "objective", "loss", "num_beams", "length_penalty", "tta", "eval_batch_size", "batch_tokens", "channels_last",
    "device",
}  # fmt: skip
# Settings that matter while a model learns, and not after that: what they do is in its weights.
TRAINING_ONLY = {
    "epochs", "max_steps", "minutes", "batch_size", "accumulate", "optimizer", "lr", "momentum", "betas", "eps",
    "alpha", "weight_decay", "schedule", "warmup", "milestones", "gamma", "decay", "grad_clip", "label_smoothing",
    "class_weights", "sampling", "ema", "average_epochs", "loss_chunk", "patience", "monitor", "weights", "vectors",
    "teacher", "temperature", "teacher_weight", "mask_ratio", "decoder_dim", "norm_pix_loss", "inner_lr",
    "inner_steps", "first_order", "ewc_lambda", "fisher_samples", "group_size", "kl_weight", "buffer", "attack",
    "attack_eps", "attack_steps", "lora", "lora_alpha", "lora_layers", "sparsity", "prune_scope", "prune_until",
    "prune_pattern", "prune_channels", "qat", "qat_group", "freeze", "freeze_epochs", "layer_decay", "seed",
    "processes", "parallel", "tensor_parallel", "recompute", "sync_batchnorm", "max_restarts", "precision", "compile",
    "threads", "memory_fraction", "save_minutes", "snapshots", "tensorboard", "tracker",
}  # fmt: skip
# Settings of the data by which the run's own data is opened again, each as it was: read, split and prepared alike.
OF_DATA: dict[str, Any] = {  # with a value that is not the usual one
    "target": "y", "ignore": ("a",), "types": ("a:category",), "group": "g", "separator": ";", "decimal": ",",
    "encoding": "latin-1", "header": False, "quoting": "none", "missing_values": ("?",), "noise": 0.3, "count": 77,
    "missing": "drop", "scale": "quantile", "val": 0.21, "test": 0.11, "fold": 1, "folds": 4, "split_seed": 3,
    "image_size": 40, "palette_size": 16, "resize": "crop", "color": "gray", "max_samples": 33, "memory": 9,
    "workers": 0, "tasks": 2,
    "ways": 3, "shots": 4, "queries": 6, "text": "t", "pairs": True, "tokenizer": "words", "special_tokens": True,
    "joint_vocab": True, "vocab_size": 99, "min_count": 3, "lower": True, "length": 13, "window": 3,
    "subsample": 0.01, "stateful": True, "documents": True, "form": "tags", "mask_prob": 0.2, "whole_words": True,
    "forecast": ("f",), "time": "t", "id": "i", "lookback": 12, "horizon": 5, "season_length": 4,
    "known_future": ("k",), "calendar": ("month",), "gaps": "fill", "rate": 8000, "n_mels": 20, "seconds": 1.5,
    "frames": 4, "num_neighbors": (3,), "inductive": True, "edge_attr": True, "links": True, "smiles": "s",
}  # fmt: skip
AUGMENTATION: dict[str, Any] = {"flip": True, "crop": 2, "color_jitter": 0.1, "cutout": 3, "mixup": 0.2}

GIVEN: dict[str, Any] = {"epochs": 1, "tensorboard": False, "max_samples": 100}


def trained(folder: Path, model: str, source: str, **given: Any) -> Path:
    return train_model(model, source, {**GIVEN, **given}, out=folder, progress=Progress(shown=False)).folder


@pytest.fixture(scope="module")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of images, with settings that are not the usual ones."""
    return trained(tmp_path_factory.mktemp("run") / "run", "lenet5-modern", "digits", tta=True, eval_batch_size=7,
                   channels_last=True, device="cpu")  # fmt: skip


@pytest.fixture(scope="module")
def pairs_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of pairs of texts, whose answers are decoded."""
    folder = tmp_path_factory.mktemp("pairs")
    lines = [f"{'abc'[k % 3]} {'de'[k % 2]}\t{'xy'[k % 2]} {'uvw'[k % 3]}" for k in range(60)]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    small = {"model.layers": 1, "model.heads": 1, "model.dim": 8}
    return trained(folder / "run", "transformer-tiny", str(folder / "pairs.tsv"), pairs=True, num_beams=3,
                   length_penalty=0.9, batch_tokens=300, **small)  # fmt: skip


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a table, whose loss is not the usual one."""
    return trained(tmp_path_factory.mktemp("table") / "run", "mlp", "diabetes", loss="half_squared_error")


def test_every_setting_of_training_is_classified() -> None:
    both = RUN_TIME & TRAINING_ONLY
    assert not both, f"in both lists: {sorted(both)}"
    known = {field.name for field in dataclasses.fields(TrainSettings)}
    new = known - RUN_TIME - TRAINING_ONLY
    assert not new, f"say of {sorted(new)} whether it matters when a model runs (RUN_TIME) or not (TRAINING_ONLY)"
    assert not (gone := (RUN_TIME | TRAINING_ONLY) - known), f"no settings any more: {sorted(gone)}"


def test_every_setting_of_data_is_classified() -> None:
    assert not OF_DATA.keys() & AUGMENTATION.keys()
    known = {field.name for field in dataclasses.fields(DataSettings)}
    new = known - OF_DATA.keys() - AUGMENTATION.keys()
    assert not new, f"say of {sorted(new)} whether the data is opened by it (OF_DATA) or not (AUGMENTATION)"
    assert not (gone := (OF_DATA.keys() | AUGMENTATION.keys()) - known), f"no settings any more: {sorted(gone)}"
    usual = DataSettings()
    assert not [key for key, value in {**OF_DATA, **AUGMENTATION}.items() if getattr(usual, key) == value]


def test_all_run_time_settings_are_tested() -> None:
    assert {*PASSED, "objective", "loss", "channels_last", "device"} == RUN_TIME


# What evaluation is given, by the setting that it comes from; and the run that has it.
PASSED = {
    "tta": ("image_run", "flip", True), "eval_batch_size": ("image_run", "size", 7),
    "num_beams": ("pairs_run", "num_beams", 3), "length_penalty": ("pairs_run", "length_penalty", 0.9),
    "batch_tokens": ("pairs_run", "tokens", 300),
}  # fmt: skip


@pytest.mark.parametrize("key", PASSED)
def test_evaluation_takes_the_setting_from_the_run(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    of, name, value = PASSED[key]
    run = Run(request.getfixturevalue(of))
    assert run.about["settings"][key] == value
    given: dict[str, Any] = {}
    really = running.evaluate_split

    def spy(model: Any, split: Any, place: Any, size: int, *more: Any, **named: Any) -> Any:
        given.update(named, size=size)
        return really(model, split, place, size, *more, **named)

    monkeypatch.setattr(running, "evaluate_split", spy)
    stored = read_json(run.folder / "evaluation.json")["metrics"]
    found = run.evaluate()
    assert given[name] == value
    assert {metric: one.value for metric, one in found.items()} == pytest.approx(
        {metric: one["value"] for metric, one in stored.items()}
    )


def changed(folder: Path, to: Path, **settings: Any) -> Path:
    """A copy of a run whose run.json says other settings."""
    shutil.copytree(folder, to)
    about = read_json(to / "run.json")
    about["settings"] |= settings
    (to / "run.json").write_text(json.dumps(about), encoding="utf-8")
    return to


@pytest.mark.parametrize("value", [True, False])
def test_the_memory_format_is_taken_from_the_run(image_run: Path, tmp_path: Path, value: bool) -> None:
    run = Run(changed(image_run, tmp_path / "run", channels_last=value))
    assert run.place.channels_last is value


def test_the_device_is_taken_from_the_run(image_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    really = trained_run.available_device
    monkeypatch.setattr(trained_run, "available_device", lambda name: asked.append(name) or really(name))
    assert Run(image_run).place.device.type == "cpu"
    assert Run(changed(image_run, tmp_path / "run", device="cuda:3")).place
    assert asked == ["cpu", "cuda:3"]


def test_the_loss_is_taken_from_the_run(table_run: Path) -> None:
    run = Run(table_run)
    assert run.about["loss"] == run.task.loss_name == "half_squared_error"


def test_the_objective_is_taken_from_the_run(tmp_path: Path) -> None:
    run = Run(trained(tmp_path / "run", "lenet5-modern", "digits", objective="simclr", batch_size=50))
    target = type(run.spec.target)
    assert isinstance(run.data().spec.target, target)
    assert type(Run(run.folder).task).__name__ == "Contrastive"


@pytest.mark.parametrize("key", OF_DATA)
def test_data_is_opened_again_with_the_setting_of_the_run(
    image_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    value = OF_DATA[key]
    asked: list[DataSettings] = []
    really = trained_run.open_data
    monkeypatch.setattr(
        trained_run, "open_data", lambda source, own, *more: asked.append(own) or really(source, own, *more)
    )
    run = Run(changed(image_run, tmp_path / "run", **{key: list(value) if isinstance(value, tuple) else value}))
    with contextlib.suppress(CutawayError):  # of a setting that images have no use for
        run.data()
    assert as_text(getattr(asked[0], key)) == as_text(value)


# What `export` does with each setting: the graph computes it, the document beside the graph holds it, or it is decided
# where the file is run (a session of onnxruntime has its own device, memory format and batches).
EXPORTED = {
    "graph": {"tta"},
    "document": {"loss", "num_beams", "length_penalty", "batch_tokens"},
    "target": {"objective"},  # it is that of the preprocessing
    "session": {"eval_batch_size", "channels_last", "device"},
}
# What `inspect` takes from the run: its task. One pass over a few examples on the CPU has no use for the others.
INSPECTED = {"objective", "loss"}
NOT_INSPECTED = {"num_beams", "length_penalty", "tta", "eval_batch_size", "batch_tokens", "channels_last", "device"}


def test_every_run_time_setting_is_classified_for_export_and_inspection() -> None:
    assert sorted(key for keys in EXPORTED.values() for key in keys) == sorted(RUN_TIME)
    assert sorted([*INSPECTED, *NOT_INSPECTED]) == sorted(RUN_TIME)


@pytest.mark.slow
def test_an_exported_graph_computes_what_the_setting_says(image_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    losses = []
    for value in (True, False):
        run = Run(changed(image_run, tmp_path / f"tta-{value}", tta=value))
        export(run, tmp_path / f"{value}.onnx")
        found = ExportedRun(tmp_path / f"{value}.onnx").evaluate("digits")["loss"].value
        assert found == pytest.approx(run.evaluate("digits")["loss"].value, rel=1e-4)
        losses.append(found)
    assert abs(losses[0] / losses[1] - 1) > 1e-3


@pytest.mark.slow
def test_an_exported_document_holds_the_settings_of_the_run(pairs_run: Path, table_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    export(Run(pairs_run), tmp_path / "pairs.onnx")
    opened = ExportedRun(tmp_path / "pairs.onnx")
    assert opened.about["settings"] == {"num_beams": 3, "length_penalty": 0.9, "batch_tokens": 300}
    export(Run(table_run), tmp_path / "table.onnx")
    assert ExportedRun(tmp_path / "table.onnx").task.loss_name == "half_squared_error"
    assert EXPORTED["document"] == {*opened.about["settings"], "loss"}


def test_a_quantized_run_has_all_settings_of_the_run(image_run: Path, tmp_path: Path) -> None:
    before, after = Run(image_run), quantize(Run(image_run), tmp_path / "quantized", {"method": "dynamic"})
    assert after.about["settings"] == before.about["settings"]
    assert {key: after.about["settings"][key] for key in ("tta", "eval_batch_size", "channels_last", "device")} == {
        "tta": True, "eval_batch_size": 7, "channels_last": True, "device": "cpu",
    }  # fmt: skip
    assert after.place.channels_last is True
    assert after.place.device.type == "cpu"
    asked = after.evaluate("digits")["loss"].value
    plain = Run(changed(after.folder, tmp_path / "plain", tta=False)).evaluate("digits")["loss"].value
    assert abs(asked / plain - 1) > 1e-3


def test_inspection_takes_the_task_of_the_run(table_run: Path) -> None:
    run = Run(table_run)
    subject = open_subject(run)
    assert subject.task is not None
    assert subject.task.loss_name == "half_squared_error"
    assert subject.data is not None
    assert type(subject.task.target) is type(run.spec.target)
    assert next(subject.model.parameters()).device.type == "cpu"
