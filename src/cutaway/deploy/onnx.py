"""ONNX export: conversion by PyTorch's exporter, comparison with onnxruntime, reading, and column inputs.

Each column of a table is one input of the graph, shape (N,), with the column's name. Numbers are doubles, and
categories are strings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.errors import CutawayError, FileError, ModelError
from ..core.extras import require
from ..core.files import atomic_write, read_bytes
from .exported_program import (
    KEY,
    TOLERANCE,
    TracedModel,
    array_from_json,
    first_line,
    golden_example,
    reject_different,
    relative_difference,
    silence_exporters,
)

CHECKSUM = f"{KEY}.sha256"  # checksum of the file without this entry
MAX_BYTES = 2_000_000_000  # maximum bytes of one protobuf message


def require_onnx(*, to_write: bool = True) -> None:
    """Raise SettingError if a library is not installed."""
    for name in ("onnx", "onnxruntime", *(("onnxscript",) if to_write else ())):
        require(name, "Exporting to ONNX" if to_write else "Running an ONNX model")


class Session(nn.Module):
    """ONNX model that onnxruntime runs on the CPU, with the call signature of the original model."""

    def __init__(self, content: bytes, columns: Sequence[Column] = ()) -> None:
        """Open the model. `columns` are those of a table, one input each."""
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # failures are raised as errors
        options.intra_op_num_threads = torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.names = [given.name for given in self.session.get_inputs()]
        self.columns = list(columns)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the model on the inputs of its forward."""
        return self.run(self.feed(inputs))

    def run(self, feed: Mapping[str, NDArray[Any]]) -> Tensor:
        """Return the output for inputs by name."""
        return torch.from_numpy(self.session.run(None, dict(feed))[0])

    def feed(self, inputs: Sequence[Tensor]) -> dict[str, NDArray[Any]]:
        """Return inputs by name in the format of onnxruntime."""
        if self.columns:
            return dict(zip(self.names, to_cells(inputs, self.columns), strict=True))
        return {name: np.ascontiguousarray(x.numpy()) for name, x in zip(self.names, inputs, strict=True)}


def write_onnx(traced: TracedModel, path: Path, document: Mapping[str, Any], columns: Sequence[Column] = ()) -> None:
    """Write the ONNX file if onnxruntime gives the model's outputs at both other sizes.

    Args:
        traced: Traced model.
        path: File to write.
        document: Document that is stored with the model.
        columns: Columns of a table. Each becomes an input.

    Raises:
        ModelError: If an operator has no form in ONNX, or the outputs differ.
    """
    size = sum(x.nbytes for x in traced.program.state_dict.values())
    if size > MAX_BYTES:
        raise ModelError(
            f"The weights have {size:,} bytes, and an ONNX file is limited to 2 GB: export to .pt2 instead."
        )
    model = _convert(traced)
    if columns:
        split_inputs_by_column(model, columns)
    session = check_conversion(model, traced, columns)
    inputs, output = traced.checks[-1]
    whole = {**document, "inputs": session.names, "golden": golden_example(session.feed(inputs), output)}
    if columns:
        whole["columns"] = [column.to_json() for column in columns]
    import onnx

    onnx.helper.set_model_props(model, {KEY: json.dumps(whole, ensure_ascii=False)})
    model.metadata_props.add(key=CHECKSUM, value=_digest(model))
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


def check_conversion(model: Any, traced: TracedModel, columns: Sequence[Column] = ()) -> Session:
    """Open the model with onnxruntime and compare it with the traced model.

    Raises ModelError if it does not open or differs.
    """
    try:
        session = Session(model.SerializeToString(), columns)
    except Exception as error:  # onnxruntime's own types
        raise ModelError(
            f"Nothing was written: onnxruntime cannot open the converted model ({first_line(error)})."
        ) from error
    reject_different(traced, session, "the conversion to ONNX")
    return session


def read_onnx(path: Path) -> tuple[Session, dict[str, Any]]:
    """Read the model and the document of a file that `write_onnx` wrote.

    Raises:
        FileError: If the file is a different one, was changed, refers to other files, or does not reproduce its own
            example.
    """
    require_onnx(to_write=False)
    if path.stat().st_size > MAX_BYTES:
        raise FileError(f"{path} has {path.stat().st_size:,} bytes; exports of `cutaway export` have at most 2 GB.")
    model, found = _parse(path)
    if any(tensor.external_data or tensor.data_location for tensor in _tensors(model)):
        raise FileError(f"{path} refers to weights in external files, which are not supported. Export the run again.")
    try:
        document = json.loads(found[KEY])
        columns = [Column.from_json(one) for one in document.get("columns", ())]
        session = Session(model.SerializeToString(), columns)
        expected = torch.from_numpy(array_from_json(document["golden"]["output"]))
        answered = session.run({name: array_from_json(x) for name, x in document["golden"]["inputs"].items()})
    except CutawayError:
        raise
    except Exception as error:  # of JSON, numpy or onnxruntime
        raise FileError(f"onnxruntime cannot load {path} ({first_line(error)}). Export the run again.") from error
    off = relative_difference(answered, expected)
    if not off <= TOLERANCE:
        raise FileError(
            f"The outputs of {path} for its stored example differ from those at export, by {off:.2g} of the largest "
            "output. Use the version of onnxruntime that it was exported with, or export the run again."
        )
    return session, document


def _parse(path: Path) -> tuple[Any, dict[str, str]]:
    """Return the model of a file without its checksum, and its metadata. Raises FileError if it was changed."""
    import onnx

    try:
        model = onnx.load_model_from_string(read_bytes(path))
    except CutawayError:
        raise
    except Exception as error:  # protobuf's own types
        raise FileError(
            f"{path} is not a valid ONNX file or is truncated. Export the run again: cutaway export RUN OUT.onnx."
        ) from error
    found = {prop.key: prop.value for prop in model.metadata_props}
    if KEY not in found or CHECKSUM not in found:
        raise FileError(
            f"{path} has no preprocessing from `cutaway export`. Open it with onnxruntime, or export the run again."
        )
    for prop in list(model.metadata_props):
        if prop.key == CHECKSUM:
            model.metadata_props.remove(prop)
    if _digest(model) != found[CHECKSUM]:
        raise FileError(f"{path} is damaged: its checksum differs. Export the run again.")
    return model, found


def _tensors(message: Any) -> list[Any]:
    """Return every tensor of a model: in graphs, nested graphs, attributes of nodes and functions."""
    import onnx

    found, left = [], [message]
    while left:
        one = left.pop()
        if isinstance(one, onnx.TensorProto):
            found.append(one)
            continue
        for descriptor, value in one.ListFields():
            if descriptor.message_type is not None:
                left += [value] if hasattr(value, "ListFields") else list(value)
    return found


def _convert(traced: TracedModel) -> Any:
    """Convert the traced program to an ONNX ModelProto. Raises ModelError if an operator has no ONNX form."""
    try:
        with (
            torch.no_grad(),
            silence_exporters(),
        ):  # with gradients the exporter stores the values of a scan for a backward pass
            made = torch.onnx.export(
                traced.program,
                (),
                dynamo=True,
                input_names=list(traced.names),
                output_names=["output"],
                external_data=False,
                verbose=False,
            )
        assert made is not None, "the dynamo exporter returns a program"
        return made.model_proto
    except Exception as error:  # the exporter's own types
        raise ModelError(
            f"This model cannot be converted to ONNX ({first_line(error.__cause__ or error)}). Export to "
            ".pt2 instead, which keeps PyTorch's operators."
        ) from error


def _digest(model: Any) -> str:
    """Return the SHA-256 of the model."""
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


CATEGORY = "category"


@dataclass(frozen=True)
class Column:
    """Column of a table.

    A number, a date (days since 1970) or a yes/no (1 and 0) is NaN if it is missing. A missing category is "". A
    category has one code for each of `categories`, one for a missing cell if training had any, and a last one for all
    other values.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    missing: bool = False

    @property
    def unknown(self) -> int:
        """Return the code of a value that did not occur in training."""
        return len(self.categories) + self.missing

    @property
    def codes(self) -> dict[str, int]:
        """Return the code of each known value."""
        known = {value: code for code, value in enumerate(self.categories)}
        return known | ({"": len(self.categories)} if self.missing and "" not in known else {})

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` returns an equal object."""
        return {"column": self.name, "kind": self.kind, "categories": list(self.categories), "missing": self.missing}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        """Return the column that `to_json` wrote."""
        return cls(data["column"], data["kind"], tuple(map(str, data["categories"])), bool(data["missing"]))


def to_cells(inputs: Sequence[Tensor], columns: Sequence[Column]) -> list[NDArray[Any]]:
    """Return the cells (N,) of each column from the numbers (N, n) and codes (N, c) of a batch.

    A value without a code becomes a string that did not occur in training.
    """
    numbers = [column for column in columns if column.kind != CATEGORY]
    found = [np.ascontiguousarray(x) for x in inputs[0].numpy().T] if numbers else []
    for column, codes in zip(columns[len(numbers) :], inputs[-1].numpy().T):
        written = {code: value for value, code in column.codes.items()}
        strange = "?" * (1 + max((len(value) for value in column.codes), default=0))
        found.append(np.array([written.get(code, strange) for code in codes.tolist()], dtype=object))
    return found


def split_inputs_by_column(model: Any, columns: Sequence[Column]) -> None:
    """Replace the inputs `numbers` and `codes` of a model by one input for each column."""
    import onnx
    from onnx import TensorProto, helper

    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {one.name for one in (*model.graph.initializer, *model.graph.output)}
    inputs, nodes, parts = [], [], {"numbers": [], "codes": []}  # type: ignore[var-annotated]
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param or "N"
    for k, column in enumerate(columns):
        name = column.name
        while name in taken or not name:
            name += "_"
        taken.add(name)
        of_category = column.kind == CATEGORY
        kind = TensorProto.STRING if of_category else TensorProto.DOUBLE
        inputs.append(helper.make_tensor_value_info(name, kind, [batch]))
        if of_category:
            codes = column.codes or {"": column.unknown}
            nodes.append(
                helper.make_node(
                    "LabelEncoder",
                    [name],
                    [f"cutaway_code_{k}"],
                    domain="ai.onnx.ml",
                    keys_strings=list(codes),
                    values_int64s=list(codes.values()),
                    default_int64=column.unknown,
                )
            )
            name = f"cutaway_code_{k}"
        nodes.append(helper.make_node("Unsqueeze", [name, "cutaway_one"], [f"cutaway_column_{k}"]))
        parts["codes" if of_category else "numbers"].append(f"cutaway_column_{k}")
    nodes += [helper.make_node("Concat", found, [name], axis=1) for name, found in parts.items() if found]
    others = list(model.graph.node)
    del model.graph.input[:], model.graph.node[:]
    model.graph.input.extend(inputs)
    model.graph.node.extend([*nodes, *others])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "cutaway_one"))
    if not any(one.domain == "ai.onnx.ml" for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
