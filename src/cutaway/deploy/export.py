"""Export of a run to one .onnx or .pt2 file (`cutaway export`), with its tokenizers next to it.

Tokenizers are written as tokenizer.json of the `tokenizers` library, which Rust, JavaScript and others read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.errors import ModelError, SettingError
from ..core.files import EXPORTED, atomic_write, read_json, reject_overwriting
from ..core.spec import (
    Boxes,
    Classes,
    Horizon,
    Mask,
    Masked,
    NextToken,
    Spelled,
    Tags,
    Target,
    TextSpec,
    Tokens,
    Transcript,
    Value,
)
from ..core.version import __version__
from ..data.tables.column_types import Category
from ..data.tables.transforms import TablePreprocessing
from ..data.text.tokenizers import PAD, UNKNOWN, Characters, LibraryTokenizer, Tokenizer
from ..models.base import SupportsState
from ..nn.low_precision import reject_integers
from ..runs.run import Run
from .exported_program import TracedModel, trace, write_program
from .onnx import Column, require_onnx, write_onnx
from .preprocessing_graph import ExportModule, graph_inputs
from .runtime import ExportedRun

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

SUPPORTED_TARGETS: tuple[type[Target], ...] = (
    Classes, Value, Horizon, Tags, NextToken, Masked, Mask, Boxes, Tokens, Transcript, Spelled
)  # fmt: skip
UNSUPPORTED_REASONS = {  # why runs with other targets are rejected
    "Episodes": "few-shot learning needs the support examples of its classes at inference",
    "Context": "word vectors are a table: `cutaway.load(RUN).vectors` writes them to a file",
    "Links": "link prediction needs the whole graph at inference",
    "Noise": "diffusion sampling is a loop around the model",
    "ImageTokens": "an image is sampled pixel by pixel in a loop around the model",
    "Image": "a variational auto-encoder has two graphs, encoder and decoder, and no prediction",
    "Patches": "pre-training has no predictions: fine-tune on classes and export that run",
    "Views": "pre-training has no predictions: fine-tune on classes and export that run",
    "Solution": "problem solving is a search around the model",
}


def export(run: Run, path: Path, overwrite: bool = False) -> list[Path]:
    """Export a run to one file, with all that `predict` needs, and the tokenizers of texts next to it.

    Nothing is written unless the converted model gives the outputs of the run's model at two sizes other than the
    traced one.

    Args:
        run: Run to export.
        path: File that ends in .onnx or .pt2.
        overwrite: Whether existing files are replaced.

    Returns:
        The files that were written.

    Raises:
        SettingError: If the file has another extension, or libraries are missing.
        ModelError: If the run cannot be exported.
    """
    if path.suffix not in EXPORTED:
        raise SettingError(f"Invalid path {path}: must end in .onnx (onnxruntime) or .pt2 (torch.export).")
    reject_overwriting(path, overwrite=overwrite)
    if path.suffix == ".onnx":
        require_onnx()
    _reject_unsupported(run)
    beside = tokenizer_contents(tokenizer_files(run.preprocessing, path))
    for file in beside:
        reject_overwriting(file, overwrite=overwrite)
    form = graph_inputs(run.preprocessing)
    by_token = isinstance(run.spec, TextSpec) and isinstance(run.spec.target, Tags | NextToken | Masked)
    whole = ExportModule(run.model.cpu(), form.front, bool(run.about["settings"].get("tta", False)), by_token).eval()
    traced = trace(whole, form.names, form.dynamic(), form.inputs())
    document = _document(run, traced)
    with contextlib.ExitStack() as stack:  # all files or none
        for file, text in beside.items():
            stack.enter_context(atomic_write(file)).write_text(text, encoding="utf-8")
        if path.suffix == ".onnx":
            write_onnx(traced, path, document, onnx_columns(run.preprocessing))
        else:
            write_program(traced, path, document)
    return [path, *beside]


def onnx_columns(preprocessing: Any) -> list[Column]:
    """Return the columns of a table as inputs of an ONNX graph, numeric columns first. Other data have none."""
    if not isinstance(preprocessing, TablePreprocessing):
        return []
    numbers = [Column(e.name, e.kind) for e in preprocessing.encoders if not isinstance(e, Category)]
    categories = [
        Column(e.name, e.kind, e.categories, e.missing) for e in preprocessing.encoders if isinstance(e, Category)
    ]
    return numbers + categories


def _reject_unsupported(run: Run) -> None:
    """Raise ModelError for a run whose prediction is more than one pass of its model over a batch."""
    if isinstance(run, ExportedRun):
        raise ModelError(f"{run.folder} is already an export: use the run that it was exported from.")
    reject_integers(run.model, run.folder)
    spec, target = run.spec, run.spec.target
    if type(target) not in SUPPORTED_TARGETS:
        why = UNSUPPORTED_REASONS.get(type(target).__name__, "its prediction needs more than one forward pass")
        raise ModelError(
            f"{run.folder} cannot be exported: its task is {target.column} of {spec.kind} data, and {why}. "
            "See docs/export.md for supported tasks."
        )
    if any(x.dtype not in (torch.float32, torch.int64) for x in run.model.parameters()):
        raise ModelError(f"{run.folder} has weights that are not float32: train with precision=float32 to export.")


def _is_stateful(run: Run) -> bool:
    """Return whether windows of a text continue one another.

    The exported file has no state and is given all previous tokens instead.
    """
    asked = run.about["settings"].get("stateful") is not False
    return asked and isinstance(run.spec.target, NextToken) and isinstance(run.model, SupportsState)


def _document(run: Run, traced: TracedModel) -> dict[str, Any]:
    """Return the document that is stored with the model. It contains no path of this machine."""
    target = run.spec.target
    answer = {"kind": type(target).__name__.lower(), "column": target.column}
    if not getattr(run.preprocessing, "scales", None):  # several series have separate scales in the preprocessing
        for name in ("mean", "scale"):  # (output · scale + mean) is in the units of the data
            if hasattr(target, name):
                answer[name] = getattr(target, name)
    return {
        "cutaway": __version__,
        "model": run.about["model"],
        "loss": run.about["loss"],
        "settings": {name: run.about["settings"].get(name) for name in ("num_beams", "length_penalty", "batch_tokens")},
        "carries": _is_stateful(run),
        "context_length": getattr(getattr(run.model, "config", None), "context_length", None),
        "inputs": list(traced.names),
        "answer": answer,
        "labels": list(getattr(target, "names", ())),
        "preprocessing": read_json(run.folder / "model" / "preprocessing.json"),
    }


TEST_TEXTS = ("", "Don't stop, 3.14!", "naïve café — 你好, мир", "  two  spaces\nand a line\t", "x" * 120)


def tokenizer_files(preprocessing: Any, path: Path) -> dict[Path, Tokenizer]:
    """Return the paths of the tokenizers of a run next to its file at `path`: one for texts, two for pairs."""
    ours = {"": getattr(preprocessing, "tokenizer", None)}
    for name, attribute in (("source", "source_tokenizer"), ("target", "target_tokenizer")):
        ours[f".{name}"] = getattr(preprocessing, attribute, None)
    return {path.with_name(f"{path.stem}{end}.tokenizer.json"): one for end, one in ours.items() if one is not None}


def tokenizer_contents(files: Mapping[Path, Tokenizer]) -> dict[Path, str]:
    """Return the content of each file. Raises ModelError if the library would tokenize a text differently."""
    found: dict[Path, str] = {}
    for path, ours in files.items():
        library = to_library_tokenizer(ours)
        for text in TEST_TEXTS:
            if list(library.encode(text, add_special_tokens=False).ids) != ours.encode(text):
                raise ModelError(f"The tokenizers library splits the {ours.kind} of this run differently: {text!r}.")
        found[path] = library.to_str(pretty=False)
    return found


def to_library_tokenizer(ours: Tokenizer) -> Library:
    """Convert the tokenizer to one of the library."""
    if isinstance(ours, LibraryTokenizer):
        return ours._library
    assert isinstance(ours, Characters), "all other tokenizers are of the library"
    from tokenizers import Regex, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Library

    ids = {token: i for i, token in enumerate(ours.tokens)}
    special = ours.tokens[UNKNOWN]
    library = Library(models.WordLevel(ids, unk_token=special))
    if ours.lower:
        library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    assert ids[ours.tokens[PAD]] == PAD
    return library
