"""Registry of the kinds of data: their folders, their settings, and the classes that restore their preprocessing.

A kind is an entry here, a Spec in `spec.py` and a folder next to this file. The modules of a folder are imported on
demand: audio, video and graphs each need a library. Settings of other kinds are rejected by name, never ignored.

Loading of the preprocessing that was saved with a model, for every kind of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import spec as specs
from ..core.config import as_text, shorten
from ..core.errors import DataError, IncompatibleSettingError, join, shorten_repr
from ..core.files import read_json
from ..core.schema import find_mismatch
from ..core.spec import current_kind
from .settings import DataSettings

if TYPE_CHECKING:
    from .dataset_base import Preprocessing

_FORM = ("separator", "decimal", "encoding", "header", "quoting", "missing_values")  # how a table is written
_PIXELS = ("image_size", "resize", "color", "memory", "workers")
_TOKENS = ("tokenizer", "vocab_size", "min_count", "lower", "length")


OF_EPISODES = ("ways", "shots", "queries")
OF_CAPTIONS = _TOKENS  # for images, only with captions


@dataclass(frozen=True)
class Modality:
    """A kind of data."""

    folder: str  # next to this file
    opens: str  # the function of its dataset.py that builds a data set from a source and the settings
    plural: str  # the noun in error messages
    settings: tuple[str, ...]  # settings for this kind and not for all kinds
    classes: Mapping[str | None, str]  # form of a preprocessing → "module.Class" that restores it
    asks: tuple[str, ...] = ()  # arguments of `opens` from the model: image sizes, targets
    path: bool = True  # whether a source is always a path

    def member(self, name: str) -> Any:
        """Import an object of the kind's folder by its name, such as dataset.open_table."""
        module, name = name.split(".")
        return getattr(import_module(f".{self.folder}.{module}", __package__), name)


KINDS = {
    "table": Modality(
        "tables",
        "open_table",
        "tables",
        (
            *("target", "ignore", "types", "group", "missing", "scale", "mixup", "noise", "count", "memory", "workers"),
            *OF_EPISODES,
            *_FORM,
        ),
        {None: "transforms.TablePreprocessing"},
    ),
    "image": Modality(
        "images",
        "open_folder",
        "images",
        (
            *_PIXELS,
            "palette_size",
            "flip",
            "crop",
            "color_jitter",
            "cutout",
            "mixup",
            "missing",
            *OF_EPISODES,
            *OF_CAPTIONS,
        ),
        {
            None: "transforms.ImagePreprocessing",
            "array": "transforms.ArrayPreprocessing",
            "masks": "segmentation.MaskPreprocessing",
            "boxes": "detection.BoxPreprocessing",
            "captions": "captioning.CaptionPreprocessing",
            "tokens": "tokens.TokenPreprocessing",
            "captioned-tokens": "text_to_image.CaptionedTokenPreprocessing",
        },
        asks=("sizes", "targets"),
    ),
    "text": Modality(
        "text",
        "open_text",
        "text",
        (
            *("text", "target", "missing", "group", "stateful", "documents", "special_tokens", "window", "subsample"),
            *("mask_prob", "whole_words", "form"),
            *_TOKENS,
            *_FORM,
        ),
        {
            "classes": "transforms.TextPreprocessing",
            "tags": "tagging.TagPreprocessing",
            "running": "corpus_transforms.RunningPreprocessing",
            "masked": "corpus_transforms.MaskedPreprocessing",
            "context": "word2vec_dataset.ContextPreprocessing",
            "problems": "puzzles.PuzzlePreprocessing",
        },
        asks=("targets",),
    ),
    "seq2seq": Modality(
        "pairs",
        "open_pairs",
        "pairs of sequences",
        ("pairs", "joint_vocab", *_TOKENS),
        {None: "transforms.PairPreprocessing"},
        path=False,
    ),
    "series": Modality(
        "series",
        "open_series",
        "series",
        (
            *("forecast", "ignore", "time", "lookback", "horizon", "season_length", "known_future", "gaps", "mixup"),
            *("id", "missing", "calendar"),
            *_FORM,
        ),
        {
            None: "transforms.SeriesPreprocessing",
            "signal": "transforms.SeriesPreprocessing",
            "forecast": "transforms.ForecastPreprocessing",
        },
    ),
    "audio": Modality(
        "audio",
        "open_audio",
        "audio",
        ("rate", "n_mels", "seconds", "memory", "workers", "missing", "lower"),
        {None: "transforms.AudioPreprocessing"},
        asks=("targets",),
    ),
    "video": Modality(
        "video",
        "open_videos",
        "videos",
        ("frames", "missing", *_PIXELS),
        {None: "transforms.VideoPreprocessing"},
        asks=("sizes",),
    ),
    "graph": Modality(
        "graphs",
        "open_graph",
        "graphs",
        ("target", "num_neighbors", "inductive", "edge_attr", "links", "smiles", "missing", *_FORM),
        dict.fromkeys(("columns", "matrix", "number", "degree"), "transforms.GraphPreprocessing"),
        path=False,
    ),
}


def reject_settings_for_others(settings: DataSettings, kind: str) -> None:
    """Raise SettingError for a changed setting that does not apply to this kind of data."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        whose = [other.plural for other in KINDS.values() if field.name in other.settings]
        if whose and field.name not in KINDS[kind].settings and value != field.default:
            raise IncompatibleSettingError(
                f"{field.name}={shorten(as_text(value))} is for {join(whose, 'and')}, and this is {kind} data: "
                "leave it out."
            )


def reject_changed(settings: DataSettings, keys: Iterable[str], why: str) -> None:
    """Raise SettingError for the first of these settings that was changed; the message continues with `why`."""
    usual = DataSettings()
    for key in keys:
        value = getattr(settings, key)
        if value != getattr(usual, key):
            raise IncompatibleSettingError(f"{key}={shorten(as_text(value))} {why}: leave it out.")


FIX = "Restore it from a copy, or train again."
# The target of the forms that exist for one target only. Other forms have any other target of their kind.
FORM_TARGETS: Mapping[str | None, type[specs.BaseTarget]] = {
    "masks": specs.Mask,
    "boxes": specs.Boxes,
    "captions": specs.Tokens,
    "tokens": specs.ImageTokens,
    "captioned-tokens": specs.ImageTokens,
    "tags": specs.Tags,
    "running": specs.NextToken,
    "masked": specs.Masked,
    "context": specs.Context,
    "problems": specs.Solution,
    "forecast": specs.Horizon,
}


def read_preprocessing(path: Path) -> Preprocessing:
    """Read a preprocessing file. Raises FileError if it is not JSON, and DataError if it is not a preprocessing."""
    return preprocessing_from_json(read_json(path), path)


def preprocessing_from_json(data: Any, path: Path = Path("preprocessing.json")) -> Preprocessing:
    """Restore the preprocessing that `to_json` wrote to `path`.

    Raises DataError, with path and key, if the document is not a valid preprocessing.
    """
    kind, form = (current_kind(data.get("kind")), data.get("form")) if isinstance(data, dict) else (None, None)
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None or not isinstance(form, str | None) or form not in known.classes:
        raise DataError(
            f"{path}: a preprocessing of kind {shorten_repr(kind)}{f' and form {shorten_repr(form)}' if form else ''}"
            f" is not known here; the kinds are {', '.join(KINDS)}.",
            fix="It may come from a newer version of cutaway.",
        )
    found = known.member(known.classes[form])
    if "spec" in data:
        data = {**data, "spec": specs.upgrade_spec(data["spec"])}
    if fault := find_mismatch(data, found.SCHEMA):
        raise DataError(f"{path}: {fault}.", fix=FIX)
    try:
        preprocessing: Preprocessing = found.from_json(data)
        _check_target(type(preprocessing.spec.target), form, known)
    except ValueError as error:  # beyond the schema: inconsistent sizes, an invalid tokenizer
        raise DataError(f"{path} cannot be used: {str(error).rstrip('.')}.", fix=FIX) from error
    return preprocessing


def _check_target(target: type[specs.BaseTarget], form: str | None, known: Modality) -> None:
    """Raise ValueError if the target belongs to another form of this kind of data."""
    forms = [own for own in known.classes if FORM_TARGETS.get(own) is target]
    if form not in forms if forms else form in FORM_TARGETS:
        needed = join(list(map(repr, forms or [None])), "or")
        raise ValueError(f"its form is {form!r}, and its target {target.__name__} has the form {needed}")
