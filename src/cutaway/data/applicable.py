"""Which data settings mean something for which kind of data: the others are refused by name, never ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..errors import SettingError
from ..settings import as_text, short
from .settings import DataSettings

_PICTURES = ("image_size", "resize", "color", "memory", "workers")
_MASKED = ("mask_prob", "whole_words")
_TOKENS = ("tokenizer", "vocab_size", "min_count", "lower", "length")
_FORM = ("separator", "decimal", "encoding", "header")  # how a table is written
OF = {  # the settings that are for some kinds of data alone
    "table": ("target", "ignore", "types", "group", "missing", "scale", "mixup", "noise", "count", *_FORM),
    "image": (*_PICTURES, "flip", "crop", "color_jitter", "cutout", "mixup"),
    "text": (
        *("text", "target", "missing", "group", "stateful", "documents", "special_tokens", "window", "subsample"),
        *_MASKED,
        *_TOKENS,
        *_FORM,
    ),
    "seq2seq": ("pairs", "joint_vocab", *_TOKENS),
    "series": (
        "forecast",
        "ignore",
        "time",
        "lookback",
        "horizon",
        "season_length",
        "known_future",
        "gaps",
        "mixup",
        *_FORM,
    ),
    "audio": ("rate", "n_mels", "seconds", "workers"),
    "video": ("frames", "image_size", "resize", "color", "memory", "workers"),
    "graph": ("target", "num_neighbors", "inductive", *_FORM),
}
_WHOSE = {"table": "tables", "image": "images", "text": "text", "seq2seq": "pairs of sequences", "series": "series"}
_WHOSE |= {"audio": "audio", "video": "videos", "graph": "graphs"}


def refuse_settings_for_others(settings: DataSettings, kind: str) -> None:
    """Raise SettingError for a setting that was changed and means nothing for this kind of data."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        whose = [_WHOSE[k] for k, keys in OF.items() if field.name in keys]
        if whose and field.name not in OF[kind] and value != field.default:
            raise SettingError(
                f"{field.name}={short(as_text(value))} is for {_listed(whose)}, and this is {kind} data: leave it out."
            )


def refuse_changed(settings: DataSettings, keys: Iterable[str], why: str) -> None:
    """Raise SettingError for the first of these settings that was changed; `why` follows its name and value."""
    usual = DataSettings()
    for key in keys:
        value = getattr(settings, key)
        if value != getattr(usual, key):
            raise SettingError(f"{key}={short(as_text(value))} {why}: leave it out.")


def _listed(words: list[str]) -> str:
    """images; tables and graphs; tables, text and graphs."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
