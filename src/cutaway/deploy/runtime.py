"""Opened exported files, used in place of a run's folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import FileError, SettingError
from ..core.files import EXPORTED, require_regular_file
from ..core.schema import validate_document
from ..data.dataset_base import DataSet
from ..data.modalities import preprocessing_from_json
from ..runs.run import Run
from ..statistics.intervals import Metric
from ..training.device import DeviceContext, select_device
from .graph_inputs import raw_inputs
from .onnx import CATEGORY, Session, read_onnx
from .raw_splits import raw_preprocessing

DOCUMENT = {
    "model": str, "loss": str, "settings": dict, "preprocessing": dict, "context_length": int | None, "carries?": bool,
}  # fmt: skip
State = tuple[Tensor, ...]


class ExportedRun(Run):
    """Run from an exported file. It predicts, and evaluates on other labelled data, with onnxruntime."""

    def __init__(self, path: str | Path) -> None:
        """Open the file. Raises FileError if it was not exported by Cutaway or was changed."""
        self.folder, self.module = Path(path), None
        if self.folder.suffix == ".pt2":
            raise FileError(
                f"{path} is not opened: torch.export.load unpickles the file, and a pickle can "
                "run any code. Open it with torch if you trust it, or export the run to .onnx."
            )
        require_regular_file(self.folder)
        session, document = read_onnx(self.folder)
        validate_document(document, DOCUMENT, self.folder, "Export the run again.")
        self.about = {key: document[key] for key in ("model", "loss", "settings")}
        self.preprocessing = raw_preprocessing(preprocessing_from_json(document["preprocessing"], self.folder))
        context = document["context_length"]
        kind = (
            ExportedGenerator
            if "target_so_far" in session.names
            else ExportedStatefulModel
            if document.get("carries")
            else ExportedModel
        )
        self.model = kind(session, context)

    @property
    def place(self) -> DeviceContext:
        """Return the CPU, where onnxruntime runs."""
        return select_device("cpu", "float32", None, self.model)

    def data(self) -> DataSet:
        """Raise FileError, because the file does not name its training data."""
        raise FileError(f"{self.folder} does not store the path of its training data: give the data to evaluate on.")

    def evaluate(self, source: Any = None, *, attack: str | None = None, **asked: Any) -> dict[str, Metric]:
        """Evaluate as a run does. Raises SettingError for an attack."""
        if attack is not None:
            raise SettingError(
                f"Invalid attack={attack}: needs gradients, which an export does not have. Evaluate the run that it "
                "was exported from."
            )
        return super().evaluate(source, **asked)


class ExportedModel(nn.Module):
    """ONNX session as a model that takes batches of the raw preprocessing."""

    def __init__(self, session: Session, context_length: int | None) -> None:
        super().__init__()
        self.session = session
        self.config = SimpleNamespace(context_length=context_length)  # the maximum length of texts
        self.numeric = sum(column.kind != CATEGORY for column in session.columns)
        self.kinds = ["codes"] if session.columns else session.names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of the exported model."""
        return self.session(*raw_inputs(self.kinds, inputs, self.numeric))  # type: ignore[no-any-return]


class ExportedGenerator(ExportedModel):
    """Exported model that generates token by token.

    The file has no cache, so each step processes all previous tokens.
    """

    def begin(self, source: Tensor, mask: Tensor | None = None) -> State:
        """Return the state before the first token: the source, and no tokens."""
        kept = (source,) if mask is None else (source, mask)
        return *kept, torch.empty(len(source), 0, dtype=torch.int64)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits of the next token, (N, vocab_size), and the state after `token` (N,)."""
        *source, so_far = state
        so_far = torch.cat([so_far, token[:, None]], 1)  # (N, S)
        return self(*source, so_far)[:, -1], (*source, so_far)


class ExportedStatefulModel(ExportedModel):
    """Exported model whose windows of a text continue one another.

    The file has no state, so it is given all tokens so far.
    """

    def advance(self, x: Tensor, mask: Tensor | None = None, state: State | None = None) -> tuple[Tensor, State]:
        """Return the outputs at each token of x (N, T), and all tokens so far, (1, N, S), as the state."""
        so_far = x if state is None else torch.cat([state[0][0], x], 1)  # (N, S)
        real = torch.ones_like(so_far, dtype=torch.bool)
        if mask is not None:
            real[:, -x.shape[1] :] = mask
        return self(so_far, real)[:, -x.shape[1] :], (so_far[None],)


def open_run(path: str | Path) -> Run:
    """Open the run of a folder or of an exported file."""
    return ExportedRun(path) if is_exported(path) else Run(path)


def is_exported(path: str | Path) -> bool:
    """Return whether the path has the extension of an exported file and is not a folder."""
    return Path(path).suffix in EXPORTED and not Path(path).is_dir()
