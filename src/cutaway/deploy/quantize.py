"""Quantization of a run, evaluated on the same data and split (`cutaway quantize`)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.saving import save_model
from ..core.config import build, pick
from ..core.errors import DataError
from ..core.files import write_json
from ..data.dataset_base import DataSet
from ..data.settings import DataSettings
from ..nn.low_precision import quantization_scheme
from ..runs.run import Run
from ..runs.train import write_run_evaluation
from ..training.callbacks import Interrupted
from ..training.config import TrainSettings
from ..training.run_folder import atomic_run
from ..training.setup import TrainingSetup
from .finetuning import finetune, reject_in_python
from .quantization import choose_method, quantize_model, reject_method
from .quantize_config import QuantizeSettings

CALIBRATION_BATCH = 32  # batch size of calibration
COPIED_FILES = ("metrics.csv",)  # files that are copied from the run: the training curves still apply


def quantize(run: Run, out: str | Path, given: Mapping[str, Any]) -> Run:
    """Quantize a run's model and write a run to `out`, evaluated on the same split as the run.

    Nothing is written if it fails.

    Args:
        run: Run to quantize.
        out: Folder of the new run.
        given: Settings of `cutaway quantize`.

    Returns:
        The new run.
    """
    settings = build(QuantizeSettings, given)
    model = run.model
    method = choose_method(model, settings.bits) if settings.method == "auto" else settings.method
    reject_method(model, str(run.folder), method, settings.bits)
    with atomic_run(out, "quantized") as folder:
        if not settings.qat:
            return _write_quantized(run, run, method, settings, folder)
        with tempfile.TemporaryDirectory() as between:
            return _write_quantized(
                _train_quantized(run, method, settings, Path(between) / "run"), run, method, settings, folder
            )


def _train_quantized(run: Run, method: str, settings: QuantizeSettings, out: Path) -> Run:
    """Return the run after quantization-aware training."""
    reject_in_python(run, "have it learn on", f"train(model, data, qat={method!r}), and quantize the run of that")
    given: dict[str, Any] = {"epochs": settings.qat, "qat": method, "tensorboard": False, "snapshots": 0}
    if settings.qat_lr is not None:
        given["lr"] = settings.qat_lr
    if settings.bits < 8:
        given["qat_group"] = settings.group
    try:
        return finetune(run, out, {}, given, judged=False)
    except Interrupted:  # the temporary run is removed and cannot be resumed
        raise KeyboardInterrupt from None


def _write_quantized(run: Run, whole: Run, method: str, settings: QuantizeSettings, folder: Path) -> Run:
    """Quantize the model of `run` and write it as a run. `whole` is the original run."""
    data = _load_data(run, method)
    inputs = _calibration(run, data, settings.calibration) if method == "static" and data else []
    made = quantize_model(run.place.model(run.model, learns=False), method, settings.bits, settings.group, inputs)

    scheme = quantization_scheme(made)
    assert scheme is not None
    about = {
        **run.about,
        "quantized": {
            **{key: scheme[key] for key in ("method", "bits", "group")},
            "calibration": sum(len(batch[0]) for batch in inputs),
            "from": str(whole.folder.resolve()),
            "qat": settings.qat,
        },
        "notes": [*run.about.get("notes", ()), _describe(scheme, whole, settings.qat)],
    }
    save_model(made, folder / "model", run.preset)
    shutil.copyfile(run.folder / "model" / "preprocessing.json", folder / "model" / "preprocessing.json")
    for name in COPIED_FILES:
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)
    write_json(folder / "run.json", about)
    found = Run(folder, run.module)
    if run._given is not None:
        found._given = run._given
    if data is not None:
        write_run_evaluation(_evaluation_setup(found, data), found.folder)
    return found


def _load_data(run: Run, method: str) -> DataSet | None:
    """Return the data of the run, or None if they are missing and not needed.

    Raises DataError if the method needs them.
    """
    try:
        return run.data()
    except DataError as error:
        if method == "static":
            raise DataError(
                f"method=static observes ranges on the training split of {run.folder}, which is not available: {error}",
                fix="Restore it, or use method=weight-only, which needs no data.",
            ) from error
        return None


def _calibration(run: Run, data: DataSet, count: int) -> list[tuple[Tensor, ...]]:
    """Return batches of `count` examples, evenly spaced over the training split."""
    train = data.splits["train"]
    rows = torch.linspace(0, len(train) - 1, min(count, len(train))).round().long()
    return [run.place.batch(batch)[0] for batch in train.batches(torch.split(rows, CALIBRATION_BATCH))]


def _describe(scheme: Mapping[str, Any], run: Run, qat: int) -> str:
    """Return a note that describes the quantized run."""
    kinds = [*scheme["layers"].values()]
    counts = ", ".join(
        f"{kinds.count(kind)} {kind}" for kind in ("static", "dynamic", "half", "stored") if kind in kinds
    )
    learned = f", after {qat} epoch{'s' * (qat > 1)} of quantization-aware training" if qat else ""
    return (
        f"Quantized from {run.folder} ({scheme['method']}, {scheme['bits']} bits; layers: {counts}){learned}. Curves "
        f"and time are those of {'these epochs' if qat else 'its training'}, results are of the quantized model."
    )


def _evaluation_setup(run: Run, data: DataSet) -> TrainingSetup:
    """Return the setup of a finished run with its trained model, for evaluation on its data."""
    settings = run.about["settings"]
    return TrainingSetup(
        run.preset,
        data,
        run.place.model(run.model, learns=False),
        getattr(run.model, "config", None),
        run.task,
        run.place,
        build(TrainSettings, pick(settings, TrainSettings)),
        build(DataSettings, pick(settings, DataSettings)),
        run.about["model_settings"],
        run.image_sizes,
    )
