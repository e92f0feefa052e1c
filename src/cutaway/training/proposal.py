"""Model proposal: the preset that is trained on data for which no model was named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.config import build, pick
from ..core.errors import ColumnError, NotEnoughDataError, UnsupportedDataError
from ..core.spec import (
    Boxes,
    Classes,
    GraphSpec,
    Horizon,
    ImageSpec,
    Links,
    Mask,
    NextToken,
    Solution,
    Spec,
    Tags,
    Tokens,
    Transcript,
    Value,
)
from ..data.open_data import infer_kind, open_data
from ..data.settings import DataSettings

# Targets of the proposals. Others, such as masked tokens or noise, are learned only by models that the user names. A
# folder of masks is recognized without its target, and annotations of COCO are boxes.
TARGETS = (Boxes, Classes, Horizon, Links, NextToken, Tags, Tokens, Transcript, Value)
SMALL_IMAGE = 32  # pixels: up to this height, the networks for handwritten digits and CIFAR fit
WITHOUT_OPENING = {  # kinds of data for which one preset fits all targets
    "table": ("mlp", "a multilayer perceptron, for a table"),
    "seq2seq": ("seq2seq-gru", "an encoder and a decoder with attention, for pairs of sequences"),
    "video": ("cnn-lstm", "a convolutional network for each frame and an LSTM over them, for videos"),
}


@dataclass(frozen=True)
class Proposal:
    """A preset by name, and a phrase that describes it and its data."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"Model: {self.name}, {self.reason}. `cutaway list` shows the others."


def propose_model(source: Any, given: Mapping[str, Any]) -> Proposal:
    """Propose a preset by the kind of data, its target and the size of its examples.

    Args:
        source: Data as for `cutaway.train`.
        given: Settings; those of the data decide how it is read.

    Returns:
        The proposal.

    Raises:
        UnsupportedDataError: If no preset can be proposed for the data.
        CutawayError: If the data cannot be opened.
    """
    settings = build(DataSettings, pick(given, DataSettings))
    kind = infer_kind(source, settings)
    if kind in WITHOUT_OPENING:
        return Proposal(*WITHOUT_OPENING[kind])
    if settings.smiles or settings.edge_attr:
        return Proposal("gine", "a graph isomorphism network with edge features, for molecules and other whole graphs")
    try:
        spec = open_data(source, settings, targets=TARGETS).spec
    except (ColumnError, NotEnoughDataError):
        if kind != "graph" or settings.target is not None:
            raise
        return Proposal("gae", "a graph autoencoder, for the links of a graph without a target=COLUMN")
    if proposal := _for_spec(spec):
        return proposal
    raise UnsupportedDataError(
        f"No model is proposed for {spec.kind} data whose target is {spec.target.column!r}.",
        fix=f"Name one: `cutaway list {spec.kind}` shows those that take it.",
    )


def _for_spec(spec: Spec) -> Proposal | None:
    """Return the proposal for opened data, or None."""
    target = spec.target
    if isinstance(spec, ImageSpec):
        return _for_images(spec)
    if isinstance(spec, GraphSpec):
        return _for_graphs(spec)
    if isinstance(target, Solution):
        return None  # its forms need a model of a size that only the problem can tell
    proposals = {
        ("text", Tags): ("lstm", "a recurrent network, for tags of words"),
        ("text", NextToken): ("lstm", "a recurrent network, for the next token of a text"),
        ("text", Classes): ("textcnn", "a convolutional network over words, for classes of texts"),
        ("text", Value): ("textcnn", "a convolutional network over words, for a value of each text"),
        ("series", Horizon): ("gru", "a recurrent network, for a forecast"),
        ("series", Classes): ("cnn1d", "a convolutional network over time, for classes of series"),
        ("series", Value): ("cnn1d", "a convolutional network over time, for a value of each series"),
        ("audio", Transcript): ("ctc-conv-gru", "a recurrent network with CTC, for transcripts"),
        ("audio", Classes): ("gru", "a recurrent network over a spectrogram, for classes of recordings"),
        ("audio", Value): ("gru", "a recurrent network over a spectrogram, for a value of each recording"),
    }
    for (kind, of), found in proposals.items():
        if kind == spec.kind and isinstance(target, of):
            return Proposal(*found)
    return None


def _for_images(spec: ImageSpec) -> Proposal | None:
    """Return the proposal for images, or None."""
    size = f"{spec.height}×{spec.width} pixels"
    if isinstance(spec.target, Mask):
        return Proposal("unet-small", "a U-Net, for masks")
    if isinstance(spec.target, Boxes):
        return Proposal("fcos-resnet18-small", "a detector, for boxes")
    if isinstance(spec.target, Tokens):
        return Proposal("show-attend-tell", "a convolutional network and an LSTM with attention, for captions")
    if not isinstance(spec.target, Classes | Value):
        return None
    if max(spec.height, spec.width) > SMALL_IMAGE:
        return Proposal("resnet18", f"a residual network, for images of {size}")
    if spec.channels == 1:
        return Proposal("lenet5-modern", f"a small convolutional network, for gray images of {size}")
    return Proposal("resnet20", f"a residual network for small images, of {size}")


def _for_graphs(spec: GraphSpec) -> Proposal:
    """Return the proposal for graphs."""
    if isinstance(spec.target, Links):
        return Proposal("gae", "a graph autoencoder, for links of a graph")
    if not spec.graph_level:
        return Proposal("gcn", "a graph convolutional network, for the nodes of a graph")
    return Proposal("gin", "a graph isomorphism network, for whole graphs")
