"""Optional dependencies: the extra that installs each, and one sentence if it is missing.

`require` is called before the work that needs a library begins, so that nothing is lost:

    cutaway: Reading videos needs PyAV, which is not installed: pip install 'cutaway[video]'.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from typing import Any

from .errors import SettingError


@dataclass(frozen=True)
class Library:
    """A library that an extra installs."""

    name: str  # as its documentation writes it
    extra: str  # pip install 'cutaway[EXTRA]'


LIBRARIES = {  # by import name
    "av": Library("PyAV", "video"),
    "captum": Library("Captum", "explain"),
    "jiwer": Library("jiwer", "audio"),
    "matplotlib": Library("Matplotlib", "explain"),
    "mlflow": Library("MLflow", "mlflow"),
    "onnx": Library("ONNX", "export"),
    "onnxruntime": Library("ONNX Runtime", "export"),
    "onnxscript": Library("ONNX Script", "export"),
    "optuna": Library("Optuna", "search"),
    "prometheus_client": Library("prometheus_client", "serve"),
    "pycocotools": Library("pycocotools", "detection"),
    "rdkit": Library("RDKit", "molecules"),
    "sacrebleu": Library("sacreBLEU", "translation"),
    "shtab": Library("shtab", "completion"),
    "soundfile": Library("soundfile", "audio"),
    "starlette": Library("Starlette", "serve"),
    "tensorboard": Library("TensorBoard", "tensorboard"),
    "torch_pruning": Library("Torch-Pruning", "prune"),
    "umap": Library("umap-learn", "umap"),
    "uvicorn": Library("Uvicorn", "serve"),
    "wandb": Library("Weights & Biases", "wandb"),
}


class MissingPackageError(SettingError):
    """An optional dependency that is not installed. The message holds the command that installs it."""

    code = "CUT-105"


def require(module: str, purpose: str) -> Any:
    """Import a module of an optional library.

    Args:
        module: name of the module, such as "av" or "sacrebleu.metrics.bleu".
        purpose: what needs it, as the subject of the sentence: "Reading videos", "smiles=COLUMN".

    Returns:
        The module.

    Raises:
        MissingPackageError: if the library is not installed, or cannot be imported.
    """
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(missing_package_text(module, purpose, error)) from error


def missing_package_text(module: str, purpose: str, error: ImportError | None = None) -> str:
    """Return the sentence for a library of `LIBRARIES` that is not installed, or whose import raised an error."""
    top = module.partition(".")[0]
    library = LIBRARIES[top]
    missing = error is None or (isinstance(error, ModuleNotFoundError) and error.name == top)
    reason = "which is not installed" if missing else f"which cannot be imported ({error})"
    return f"{purpose} needs {library.name}, {reason}: pip install 'cutaway[{library.extra}]'."


def is_installed(module: str) -> bool:
    """Return whether an optional library is installed, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
