"""Quantization of a run (`cutaway quantize`): method, calibration, conversion, and evaluation on the same split."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.saving import save_model
from ..core.config import build, pick
from ..core.errors import DataError, IncompatibleSettingError, MissingFileError, SettingError
from ..core.files import write_json
from ..data.dataset_base import DataSet
from ..data.settings import DataSettings
from ..nn.low_precision import layers_for, quantization_scheme, quantize_layers
from ..nn.mixed_precision import HALF_DTYPES
from ..nn.quantized import is_quantizable_conv
from ..nn.textbook.folding import fold_batch_norm
from ..runs.run import Run
from ..runs.train import write_run_evaluation
from ..training.callbacks import Interrupted
from ..training.config import TrainSettings
from ..training.run_folder import atomic_run
from ..training.setup import TrainingSetup
from .compression import finetune, reject_python_objects
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
    validate_quantization_method(model, str(run.folder), method, settings.bits)
    with atomic_run(out, "quantized") as folder:
        if not settings.qat:
            return _write_quantized(run, run, method, settings, folder)
        with tempfile.TemporaryDirectory() as between:
            return _write_quantized(
                _train_quantized(run, method, settings, Path(between) / "run"), run, method, settings, folder
            )


def _train_quantized(run: Run, method: str, settings: QuantizeSettings, out: Path) -> Run:
    """Return the run after quantization-aware training."""
    reject_python_objects(run, "have it learn on", f"train(model, data, qat={method!r}), and quantize the run of that")
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
    inputs = _calibration_batches(run, data, settings.calibration) if method == "static" and data else []
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
        "notes": [*run.about.get("notes", ()), _quantization_note(scheme, whole, settings.qat)],
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
            raise MissingFileError(
                f"method=static observes ranges on the training split of {run.folder}, which is not available: {error}",
                fix="Restore it, or use method=weight-only, which needs no data.",
            ) from error
        return None


def _calibration_batches(run: Run, data: DataSet, count: int) -> list[tuple[Tensor, ...]]:
    """Return batches of `count` examples, evenly spaced over the training split."""
    train = data.splits["train"]
    rows = torch.linspace(0, len(train) - 1, min(count, len(train))).round().long()
    return [run.place.batch(batch)[0] for batch in train.batches(torch.split(rows, CALIBRATION_BATCH))]


def _quantization_note(scheme: Mapping[str, Any], run: Run, qat: int) -> str:
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


Inputs = Sequence[tuple[Tensor, ...]]  # inputs of the model's forward, one tuple for each batch


def choose_method(model: nn.Module, bits: int) -> str:
    """Return the method that suits a model.

    It is static for convolutions, dynamic for linear layers that are large enough to become faster, and otherwise
    weight-only.
    """
    kinds = set(layers_for(model, "static").values())
    return "weight-only" if bits < 8 or kinds == {"stored"} else "static" if "static" in kinds else "dynamic"


def validate_quantization_method(model: nn.Module, name: str, method: str, bits: int) -> None:
    """Raise SettingError for a method that does not suit the model with that `name`.

    The message names one that does.
    """
    if (scheme := quantization_scheme(model)) is not None:
        raise IncompatibleSettingError(
            f"{name} is already quantized ({scheme['method']}, {scheme['bits']} bits): "
            "quantize the run that it was quantized from."
        )
    layers = layers_for(model, "static")
    if not layers:
        raise IncompatibleSettingError(
            f"{name} has no weights that can be quantized: it has no linear, convolutional or recurrent layer, and no "
            "embedding."
        )
    if any(p.dtype != torch.float32 for p in model.parameters()):
        raise SettingError(f"{name} has weights that are not float32: train with precision=float32 to quantize them.")
    if method in HALF_DTYPES:
        if bits < 8:
            raise IncompatibleSettingError(
                f"Invalid bits={bits} with method={method}, which has 16 bits: leave bits out, or use "
                "method=weight-only."
            )
        most = torch.finfo(HALF_DTYPES[method]).max
        large = [key for key, p in model.named_parameters() if float(p.detach().abs().max()) > most]
        if large:
            raise SettingError(f"Invalid method={method}: {large[0]} has weights larger than {most:g}. Use bfloat16.")
    if method != "weight-only" and bits < 8:
        raise SettingError(
            f"Invalid bits={bits} with method={method}: must be 8, because processors multiply 8-bit integers. "
            f"bits={bits} needs method=weight-only."
        )
    lacks = {"static": "no convolution", "dynamic": "no linear layer"}
    if method in lacks and method not in layers_for(model, method).values():
        raise SettingError(
            f"Invalid method={method}: {name} has {lacks[method]}. Use method={choose_method(model, bits)}."
        )


@torch.no_grad()
def quantize_model(model: nn.Module, method: str, bits: int, group: int, inputs: Inputs) -> nn.Module:
    """Return a quantized copy of a model in evaluation mode.

    Only the static method needs `inputs`, to calibrate ranges.
    """
    made = fold_batch_norm(model, *inputs[0]) if method == "static" else copy.deepcopy(model).eval()
    before = dict(model.named_modules())
    after = dict(made.named_modules())
    scheme = {
        "method": method,
        "bits": 16 if method in HALF_DTYPES else bits,
        "group": group,
        "layers": layers_for(made, method),
        "folded": [k for k, m in after.items() if isinstance(m, nn.Identity) and type(before[k]) is not nn.Identity],
        "biased": [k for k, m in after.items() if _has_bias(m) and not _has_bias(before[k])],
    }
    quantize_layers(made, scheme, observe_ranges(made, inputs) if method == "static" else {})
    return made


def observe_ranges(model: nn.Module, inputs: Inputs) -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum input of each convolution over all batches."""
    found: dict[str, tuple[float, float]] = {}

    def see(name: str, x: Tensor) -> None:
        low, high = found.get(name, (0.0, 0.0))
        least, largest = torch.aminmax(x.detach())
        found[name] = min(low, float(least)), max(high, float(largest))

    handles = [
        module.register_forward_pre_hook(lambda _, args, name=name: see(name, args[0]))
        for name, module in model.named_modules()
        if is_quantizable_conv(module)
    ]
    try:
        for batch in inputs:
            model(*batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _has_bias(module: Any) -> bool:
    return isinstance(getattr(module, "bias", None), Tensor)
