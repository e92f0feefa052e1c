"""ONNX: a traced model converted by torch's exporter, held to onnxruntime, and read back."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import CutawayError, FileError, ModelError, SettingError
from ...files import read_bytes, replacing
from .artefact import KEY, TOLERANCE, Traced, difference, from_json, reject_different

SUM = f"{KEY}.sha256"  # of the file without this entry
LARGEST = 2_000_000_000  # bytes that one protobuf message can hold


def need_onnx() -> None:
    """Raise SettingError where the libraries are not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise SettingError(
            f"ONNX needs libraries that are not here ({error}): pip install 'cutaway[export]'."
        ) from error


class Session(nn.Module):
    """An ONNX model that onnxruntime runs on the CPU, called as the model that it was made of."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.names = [given.name for given in self.session.get_inputs()]

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the model's forward takes, and gives."""
        given = {name: np.ascontiguousarray(x.numpy()) for name, x in zip(self.names, inputs, strict=True)}
        return torch.from_numpy(self.session.run(None, given)[0])


def write_onnx(traced: Traced, path: Path, document: dict[str, Any]) -> None:
    """Write the file, once onnxruntime answers as the model does at both other sizes. Raises ModelError where an
    operator has no form in ONNX, or the answers differ."""
    size = sum(x.nbytes for x in traced.program.state_dict.values())
    if size > LARGEST:
        raise ModelError(f"The weights have {size:,} bytes, and one ONNX file holds 2 GB: write a .pt2 instead.")
    content = _converted(traced)
    try:
        session = Session(content)
    except Exception as error:  # onnxruntime's own types
        raise ModelError(f"Nothing was written: onnxruntime cannot open the converted model ({error}).") from error
    reject_different(traced, session, "the conversion to ONNX")
    import onnx

    model = onnx.load_model_from_string(content)
    onnx.helper.set_model_props(model, {KEY: json.dumps(document, ensure_ascii=False)})
    model.metadata_props.add(key=SUM, value=_digest(model))
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


def read_onnx(path: Path) -> tuple[Session, dict[str, Any]]:
    """The model and the document of a file that `write_onnx` wrote. Raises FileError where it is another, or was
    changed, or answers its own example otherwise."""
    need_onnx()
    import onnx

    content = read_bytes(path)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own types
        raise FileError(
            f"{path} is no ONNX file, or is cut short. Export the run again: cutaway export RUN OUT.onnx."
        ) from error
    found = {prop.key: prop.value for prop in model.metadata_props}
    if KEY not in found or SUM not in found:
        raise FileError(
            f"{path} was not written by `cutaway export`: nothing in it says how a file becomes its input. Open it "
            "with onnxruntime, or export the run again."
        )
    for prop in list(model.metadata_props):
        if prop.key == SUM:
            model.metadata_props.remove(prop)
    if _digest(model) != found[SUM]:
        raise FileError(f"{path} was changed after it was exported: its checksum differs. Export the run again.")
    if any(one.data_location == onnx.TensorProto.EXTERNAL for one in model.graph.initializer):
        raise FileError(
            f"{path} has weights in other files, which `cutaway export` never writes. Export the run again."
        )
    try:
        document = json.loads(found[KEY])
        session = Session(content)
        expected = from_json(document["golden"]["output"])
        answered = session(*(from_json(x) for x in document["golden"]["inputs"].values()))
    except CutawayError:
        raise
    except Exception as error:  # of JSON, numpy or onnxruntime
        raise FileError(f"{path} cannot be run here ({error}). Export the run again.") from error
    off = difference(answered, expected)
    if not off <= TOLERANCE:
        raise FileError(
            f"{path} answers its own example otherwise than when it was exported: by {off:.2g} of the largest output. "
            "Use the version of onnxruntime that it was exported with, or export the run again."
        )
    return session, document


def _converted(traced: Traced) -> bytes:
    """The traced program as ONNX. Raises ModelError with the operator that has no form there."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    buffer = io.BytesIO()
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
            warnings.simplefilter("ignore")
            with contextlib.redirect_stdout(nowhere):
                made = torch.onnx.export(
                    traced.program,
                    (),
                    dynamo=True,
                    input_names=list(traced.names),
                    output_names=["output"],
                    external_data=False,
                    verbose=False,
                )
        assert made is not None, "the dynamo exporter gives a program"
        buffer.write(made.model_proto.SerializeToString())
    except Exception as error:  # the exporter's own types
        said = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
        raise ModelError(
            f"torch's exporter has no ONNX form for this model ({(said or ['no reason given'])[0][:200]}). Write a "
            ".pt2 instead, which keeps torch's own operators."
        ) from error
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
    return buffer.getvalue()


def _digest(model: Any) -> str:
    """The SHA-256 of the model as it stands."""
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
