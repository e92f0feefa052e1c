"""Every preset's class, small, exported: what docs/export.md says of it. `python -m tests.deploy.presets` makes the
whole table anew, exports.json, and writes it into the page; named presets alone with their names."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.checkpoints.huggingface.folders import write_folder
from cutaway.checkpoints.torchvision import torchvision_names
from cutaway.core.errors import CutawayError
from cutaway.deploy.exported_program import TracedModel, relative_difference, trace
from cutaway.deploy.onnx import _convert, check_conversion
from cutaway.deploy.preprocessing_graph import ExportModule, IdentityPreprocessing
from cutaway.inspect.example_inputs import example_inputs, input_modality
from cutaway.models.registry import presets
from cutaway.nn.recurrent import VariableLengthRNN
from tests.small import DIFFERENT, small, small_config, small_shape

HERE = Path(__file__).parent
KEPT = HERE / "exports.json"
PAGE = HERE.parents[1] / "docs" / "export.md"
BEGIN, END = "<!-- presets -->\n", "<!-- /presets -->\n"
FORMATS = ("ONNX", ".pt2", "Hugging Face", "torchvision")
ROWS = (2, 3, 1)  # examples in what is traced, and in what is compared
LENGTHS = (0, 2, -2)  # steps more than in the small example
TARGETS = (5, 8, 2)  # tokens of an answer so far


def inputs_of(name: str) -> tuple[list[tuple[Tensor, ...]], tuple[dict[int, Any], ...]]:
    """Inputs of three sizes for the small model of a preset, and which dimensions are free."""
    found, config = presets()[name], small_config(name)
    kind, shape = input_modality(found, config), small_shape(found, config)
    generator = torch.Generator().manual_seed(0)
    if kind == "graph":
        sizes = ((12, 30), (20, 45), (7, 9))
        edged = getattr(config, "edge_features", 0)
        graphs = [_graph(config, edged, *size, generator) for size in sizes]
        return graphs, ({0: _FREE}, {1: _FREE}, {0: _FREE}, *(({0: _FREE}, {0: _FREE}) if edged else ()))
    flat = getattr(config, "pooling", "") == "flat" or getattr(config, "steps", 0)
    scans = any(isinstance(m, VariableLengthRNN) for m in small(name)[0].modules())
    longer = (
        kind in ("text", "seq2seq", "audio") or (kind == "video" and scans) or (kind == "series" and scans and not flat)
    )
    most = getattr(config, "context_length", None) or 10**6
    found_inputs = []
    for rows, more, target in zip(ROWS, LENGTHS, TARGETS):
        own = (max(2, min(shape[0] + more * (4 if kind == "audio" else 1), most)), *shape[1:]) if longer else shape
        inputs = list(example_inputs(found, config, own, count=rows, generator=generator))
        answers = kind == "seq2seq" or (kind in ("image", "audio") and inputs[-1].dtype == torch.int64)
        if answers and kind != "seq2seq":
            inputs[-1] = inputs[-1][:, :target].clone()  # a view would be guarded as one
        for x in inputs:
            if x.dtype == torch.bool and rows > 1:
                x[-1, -1:] = False
        found_inputs.append(tuple(inputs))
    free = []
    for x in found_inputs[0]:
        second = (longer and x.ndim > 1 and kind != "image") or (x.ndim == 2 and x.dtype == torch.int64)
        free.append({0: _FREE, 1: _FREE} if second else {0: _FREE})
    return found_inputs, tuple(free)


_FREE = torch.export.Dim.DYNAMIC


def _graph(config: Any, edged: int, nodes: int, edges: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    x = torch.randn(nodes, config.in_features, generator=generator)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    rows = torch.randperm(nodes, generator=generator)[: nodes // 2]
    if not edged:
        return x, edge_index, rows
    return x, edge_index, rows, torch.zeros(nodes, dtype=torch.int64), torch.randn(edges, edged, generator=generator)


def outcome(name: str) -> dict[str, str]:
    """What each format makes of a preset: "yes", with the largest difference, or why not."""
    model, _ = small(name)
    inputs, free = inputs_of(name)
    found: dict[str, str] = {}
    traced: TracedModel | None = None
    try:
        with torch.no_grad():
            by_token = presets()[name].takes[0] == "text" and model(*inputs[0]).ndim == 3
        traced = trace(
            ExportModule(model, IdentityPreprocessing(), by_token=by_token).eval(),
            tuple(f"input{i}" for i in range(len(free))),
            free,
            inputs,
        )
        found[".pt2"] = f"yes, {_worst(traced, traced.program.module())}"
    except CutawayError as error:
        found[".pt2"] = found["ONNX"] = _short(error)
    if traced is not None:
        try:
            found["ONNX"] = f"yes, {_worst(traced, check_conversion(_convert(traced), traced))}"
        except CutawayError as error:
            found["ONNX"] = _short(error)
    with tempfile.TemporaryDirectory() as folder:
        try:
            write_folder(model, name, Path(folder) / "out")
            found["Hugging Face"] = "yes"
        except CutawayError:
            found["Hugging Face"] = "–"
    found["torchvision"] = "yes" if name in torchvision_names() else "–"
    return {key: found[key] for key in FORMATS}


def _worst(traced: TracedModel, run: Any) -> str:
    """The largest difference at the two other sizes."""
    with torch.no_grad():
        worst = max(relative_difference(run(*inputs), expected) for inputs, expected in traced.checks)
    return f"{worst:.0e}"


def _short(error: CutawayError) -> str:
    return " ".join(str(error).split())[:200]


def kept() -> dict[str, Any]:
    """What was found when the table was last made: `date` and, by preset, `found`."""
    document: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return document


def table(document: dict[str, Any]) -> str:
    """The table of the page."""
    lines = [f"| preset | {' | '.join(FORMATS)} |", "| --- " * (1 + len(FORMATS)) + "|"]
    for name, found in document["found"].items():
        lines.append(f"| {name} | {' | '.join(found[key] for key in FORMATS)} |")
    return "\n".join(lines) + "\n"


def page(text: str, document: dict[str, Any]) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(document)}{END}{after}"


def made(names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """What is found of each of these presets."""
    for name in names:
        found = outcome(name)
        print(f"{name:22} {found}", flush=True)
        yield name, found


if __name__ == "__main__":
    torch.set_num_threads(1)
    document = kept() if KEPT.is_file() else {"date": "", "found": {}}
    for name, found in made(sys.argv[1:] or list(DIFFERENT)):
        document["found"][name] = found
        document["date"] = datetime.now(UTC).date().isoformat()
        document["found"] = {one: document["found"][one] for one in DIFFERENT if one in document["found"]}
        KEPT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")
