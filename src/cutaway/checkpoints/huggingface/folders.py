"""Hugging Face folders with config.json, weights and a tokenizer, read into our models and written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from ...core.errors import FileError, ModelError
from ...core.files import atomic_dir, write_json, write_text
from ...models.registry import Preset
from ..match_config import Origin, get_origin
from ..saving import CONFIG, WEIGHTS, load_weights
from . import Family, families, find_family, to_config_json, to_transformers_names, transformers_names
from .auxiliary_configs import GENERATION, generation_note, preparation_note
from .config_fields import resolve_aliases
from .loading import ANSWERS, Folder, tensor_shapes
from .vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Model loaded from a folder."""

    model: nn.Module
    preset: Preset
    key_map: Mapping[str, str]  # the folder's name → ours
    notes: tuple[str, ...]  # notes for the user
    tokenizer: Path | None  # its tokenizer.json, if it has one
    new: tuple[str, ...] = ()  # our tensors that the folder lacks and that are untrained


def read_folder(path: Path, name: str | None = None) -> Loaded:
    """Load the model of a folder in eval mode.

    Its preset is `name`, or the one with the closest config. Its config is always that of the folder. A missing head is
    initialized from torch's random state, which is not changed. Raises FileError if the folder is invalid or its
    tensors do not fit, ModelError if the network or a value of its config is not supported.
    """
    folder = Folder(path)
    found = folder.preset(name)
    _ = folder.files  # raises before anything is built if there are no weights
    matched = folder.match(tensor_shapes(found, folder.config))
    if matched.problems:
        raise FileError(
            f"{path} does not fit the network of its {CONFIG}: {'; '.join(matched.problems)}. Take the "
            "whole folder from where it came."
        )
    with torch.random.fork_rng(devices=[]):
        model = found.build(folder.config)
    kinds = {t.dtype for t in matched.tensors.values() if t.is_floating_point()}
    kind = kinds.pop() if len(kinds) == 1 else torch.float32
    own = {k: v.to(kind) for k, v in model.state_dict().items() if k in matched.new}
    load_weights(model, {**own, **matched.tensors}, folder.path)
    origin = folder.origin(matched.new)
    model.origin = origin  # type: ignore[assignment]  # not a module or tensor
    notes = (*folder.config_note(found), *matched.notes, *preparation_note(path))
    if folder.writes:
        notes += generation_note(origin.generation, origin.config)
    return Loaded(model.eval(), found, matched.key_map, notes, folder.tokenizer, matched.new)


def write_folder(
    model: nn.Module,
    name: str,
    path: Path,
    vocabulary: Vocabulary | None = None,
    labels: Sequence[str] = (),
    problem: str | None = None,
) -> dict[str, str]:
    """Write a model of the preset `name` atomically as a folder for transformers' from_pretrained.

    The settings of the original folder are written again unless they changed. A head that it lacked and that is
    untrained is not written.

    Args:
        model: Model to write.
        name: Preset of the model.
        path: Folder to write.
        vocabulary: Tokenizer files and special tokens.
        labels: Names of the classes.
        problem: Transformers' name of the task.

    Returns:
        The key map, ours → theirs.

    Raises:
        ModelError: If transformers has no such network.
        FileError: If the folder exists or cannot be written.
    """
    family = find_family(name)
    if family is None:
        known = ", ".join(n for f in families().values() for n in f.presets)
        raise ModelError(
            f"transformers has no network like {name}, so it has no Hugging Face form. These have: {known}."
        )
    family, origin = family.with_head(model.config), get_origin(model)
    own = {k: v for k, v in model.state_dict().items() if origin is None or k not in origin.new}
    tensors = {k: v.detach().cpu().contiguous() for k, v in to_transformers_names(family, own).items()}
    # Views of a larger tensor are written as separate tensors.
    alone = {k: v if v.untyped_storage().nbytes() == v.nbytes else v.clone() for k, v in tensors.items()}
    untied = not getattr(model.config, "tie_weights", True)
    again = {theirs: ours for ours, names in family.again.items() if untied and ours in own for theirs in names}
    alone |= {theirs: own[ours].detach().cpu().clone() for theirs, ours in again.items()}
    floating = next(t.dtype for t in alone.values() if t.is_floating_point())
    document = _document(model.config, family, origin, vocabulary, labels, problem)
    document["dtype"] = str(floating).removeprefix("torch.")
    with atomic_dir(path) as folder:
        write_json(folder / CONFIG, document)
        if origin is not None and origin.generation is not None:
            write_json(folder / GENERATION, {**origin.generation, **(vocabulary.own if vocabulary else {})})
        try:
            fields = resolve_aliases(document, family.aliases)
            made = {k: c.values(c.shape(fields)).to(floating) for k, c in family.computed.items()}
            save_file({**alone, **made}, folder / WEIGHTS, {"format": "pt"})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error
        for file, text in vocabulary.files.items() if vocabulary else ():
            write_text(folder / file, text)
    added, saved = family.output_bias or ("", "")
    read = {saved: added} if added in again else {}  # the bias that transformers adds
    return {ours: ", ".join(read.get(name, name) for name in transformers_names(family, ours)[1]) for ours in own}


def _document(
    config: Any,
    family: Family,
    origin: Origin | None,
    vocabulary: Vocabulary | None,
    labels: Sequence[str],
    problem: str | None,
) -> dict[str, Any]:
    """Return config.json: changed settings and those of the original folder."""
    settings, kept = to_config_json(family, config), dict(origin.config) if origin else {}
    named = labels if settings.get("num_labels") == len(labels) else ()
    if origin:
        settings = {k: v for k, v in settings.items() if k not in origin.settings or origin.settings[k] != v}
        gone = [alias for alias, field in family.aliases.items() if field in settings]
        gone += ["id2label", "label2id"] if named or "num_labels" in settings else []
        kept = {k: v for k, v in kept.items() if k not in (*gone, "torch_dtype", "transformers_version")}
    if named:
        settings.pop("num_labels", None)
        kept.pop("num_labels", None)
        settings["id2label"] = {str(i): label for i, label in enumerate(named)}
        settings["label2id"] = {label: i for i, label in enumerate(named)}
    if problem is not None and _has_labels(config):
        settings["problem_type"] = problem
    special = vocabulary.ids if vocabulary else {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    if origin:  # special tokens of the original folder are kept, also its defaults
        said = {**origin.tokens, **origin.config}
        special = {key: value for key, value in (vocabulary.ids if vocabulary else {}).items() if said.get(key) is None}
    return {
        **kept,
        "model_type": family.model_type,
        **{key: value for key, value in special.items() if key not in settings},
        **settings,
        **(vocabulary.own if vocabulary else {}),
    }


def _has_labels(config: Any) -> bool:
    """Return whether the model has an output for each label."""
    return getattr(config, "head", None) in ANSWERS
