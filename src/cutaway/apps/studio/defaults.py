"""Defaults of the studio: for each kind of data, a small model that trains quickly and settings with which it learns
within a minute. All other values come from the model's card or the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...data.datasets.builtin import TOYS
from ...models.registry import Preset

# Possible targets of each task, as class names in spec.py: a model without any of them is not offered. For a corpus
# of text, the model determines the target.
LEARNS = {
    "classification": ("Classes",),
    "regression": ("Value",),
    "tagging": ("Tags",),
    "semantic segmentation": ("Mask",),
    "language modelling": ("NextToken", "Masked", "Context"),
    "problem solving": ("NextToken",),
    "forecasting": ("Horizon",),
    "sequence-to-sequence": ("Tokens",),
    "object detection": ("Boxes",),
    "image captioning": ("Tokens",),
    "speech recognition": ("Transcript", "Spelled"),
}
ALSO = {"cora": ("Links",), "karate": ("Links",)}  # single graphs, which also support link prediction
TOY = {
    "model": "mlp", "model.hidden_dims": "8,8", "model.activation": "tanh", "model.dropout": "0", "lr": "0.01",
    "batch_size": "64",
}  # fmt: skip
WIDE = {"ffn_dim": "256", "head_dim": "16"}  # only for models with these settings
SMALL = {"model.layers": "2", "model.heads": "4", "model.dim": "64"}
BEGINNINGS: Mapping[tuple[str, str], dict[str, str]] = {
    ("table", "classification"): {"model": "mlp", "model.hidden_dims": "16,16", "lr": "0.01", "batch_size": "64"},
    ("table", "regression"): {"model": "mlp", "model.hidden_dims": "32,32", "lr": "0.005", "batch_size": "128"},
    ("image", "classification"): {"model": "lenet5-modern"},
    ("image", "semantic segmentation"): {"model": "unet-small"},
    ("image", "object detection"): {"model": "fcos-resnet18-small"},
    ("image", "image captioning"): {"model": "show-attend-tell"},
    ("series", "classification"): {"model": "cnn1d"},
    ("series", "forecasting"): {"model": "gru", "model.hidden_dim": "32", "lr": "0.005"},
    ("text", "classification"): {"model": "textcnn", "model.dim": "64", "model.filters": "32"},
    ("text", "tagging"): {"model": "gru", "model.hidden_dim": "64", "lr": "0.005"},
    ("text", "language modelling"): {
        "model": "gpt2", **SMALL, "model.dropout": "0", "lr": "0.004", "batch_size": "16", "length": "64",
    },
    ("text", "problem solving"): {
        "model": "gpt2", **SMALL, "model.dropout": "0", "lr": "0.004", "batch_size": "64",
    },
    ("graph", "classification"): {"model": "gcn"},
    ("graph", "regression"): {"model": "gine"},
    ("seq2seq", ""): {
        "model": "seq2seq-gru", "model.hidden_dim": "64", "model.embedding_dim": "32",
        "batch_size": "32",
    },
    ("audio", "classification"): {"model": "gru", "model.hidden_dim": "64"},
    ("audio", "speech recognition"): {"model": "ctc-conv-gru"},
    ("video", "classification"): {"model": "cnn-lstm", "model.hidden_dim": "64"},
}  # fmt: skip
OF_ONE = {
    # One hidden layer, so that the page can show how its neurons add up to the curve.
    "wave": {
        "model.hidden_dims": "16",
        "model.activation": "tanh",
        "model.dropout": "0",
        "lr": "0.05",
        "batch_size": "32",
    },
    # Long texts: character tokens are fast, and a small validation split is enough.
    "wikitext2": {"tokenizer": "characters"},
    "gutenberg": {"tokenizer": "characters", "val": "0.02", "test": "0.02"},
}


def default_state(name: str, kind: str, task: str) -> dict[str, str]:
    """Return the default state of a data set; empty if its kind is unknown."""
    if name in TOYS:
        return dict(TOY)
    return {**(BEGINNINGS.get((kind, task)) or BEGINNINGS.get((kind, "")) or {}), **OF_ONE.get(name, {})}


def small_settings(preset: Preset) -> dict[str, str]:
    """Return settings that make a large attention model small enough for a CPU."""
    own: dict[str, Any] = {key: getattr(preset.config, key, None) for key in ("dim", "layers", "heads", *WIDE)}
    if not all(isinstance(own[key], int) for key in ("dim", "layers", "heads")) or own["dim"] <= 64:
        return {}
    return {**SMALL, **{f"model.{key}": value for key, value in WIDE.items() if own[key]}}
