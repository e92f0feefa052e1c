"""LoRA adapters in the format of Hugging Face's PEFT <https://github.com/huggingface/peft>, written and merged.

A folder has adapter_config.json and adapter_model.safetensors, with lora_A (r, in) and lora_B (out, r) of each layer
under its name in transformers, and the trained heads. If queries, keys and values are one matrix here and several
there, each of them has the same A and a part of B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...core.errors import CheckpointConfigError, FileError, ModelError, WeightsMismatchError
from ...core.files import read_json, write_json
from ...core.schema import COUNT, NUMBER, Between, validate_document
from ...nn.lora import LoRALinear
from . import Family, find_family, to_transformers_names, transformers_names
from .config_files import format_json, read_bool, read_float

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE = "base_model.model."  # prefix of the network's names
TASKS = {"CausalLM": "CAUSAL_LM", "SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS"}
# Options of adapters that are not supported, with the only value that is read.
PLAIN: Mapping[str, Any] = {
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
    "use_qalora": False,
    "layer_replication": None,
    "alora_invocation_tokens": None,
    "trainable_token_indices": None,
    "target_parameters": None,
}


def write_adapter(model: nn.Module, name: str, folder: Path, base: str) -> bool:
    """Write the adapter of a model of the preset `name` to `folder`, and return whether anything was written.

    Nothing is written if transformers has no such network. `base` is the source of the base weights.
    """
    family = find_family(name)
    layers = {n: m for n, m in model.named_modules() if isinstance(m, LoRALinear)}
    if family is None or not layers:
        return False
    tensors: dict[str, Tensor] = {}
    targets: list[str] = []
    for ours, layer in layers.items():
        parts = _theirs(family, ours)
        for theirs, rows in zip(parts, layer.lora_B.detach().chunk(len(parts))):
            tensors[f"{BASE}{theirs}.lora_A.weight"] = layer.lora_A.detach()
            tensors[f"{BASE}{theirs}.lora_B.weight"] = rows
            targets.append(theirs)
    learned = {
        n: p for n, p in model.named_parameters() if p.requires_grad and not n.split(".")[-1].startswith("lora_")
    }
    heads = to_transformers_names(family, {n: p.detach() for n, p in learned.items()})
    tensors |= {f"{BASE}{key}": value for key, value in heads.items()}
    first = next(iter(layers.values()))
    rank = len(first.lora_A)
    architecture = family.architecture(model.config)
    document = {
        "peft_type": "LORA",
        "task_type": next((task for kind, task in TASKS.items() if kind in architecture), None),
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": first.scale * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(transformers_names(family, f"{ours}.weight")[0].transposed for ours in layers),
        "target_modules": sorted(targets),
        "modules_to_save": sorted({key.rpartition(".")[0] for key in heads}) or None,
        "inference_mode": True,
    }
    write_json(folder / CONFIG, document)
    save_file({key: value.cpu().contiguous().clone() for key, value in tensors.items()}, folder / WEIGHTS)
    return True


@torch.no_grad()
def merge_adapter(model: nn.Module, name: str, folder: Path) -> int:
    """Merge an adapter into the weights of a model of the preset `name` and load its heads.

    Returns the number of changed layers. Raises FileError if the folder has no such adapter, or one of another network.
    Raises ModelError if transformers has no such network, or the kind of adapter is not supported.
    """
    family = find_family(name)
    if family is None:
        raise CheckpointConfigError(f"transformers has no network like {name}, so that no adapter of PEFT is for it.")
    settings, tensors = _read(folder)
    own = model.state_dict()
    heads = {key: value for key, value in tensors.items() if ".lora_" not in key}
    changed, known = 0, set()
    for key, weight in own.items():
        if not key.endswith(".weight") or weight.ndim != 2:
            continue
        parts = _theirs(family, key.removesuffix(".weight"))
        if not parts:
            continue
        change = torch.zeros_like(weight)
        found = False
        for theirs, rows in zip(parts, change.chunk(len(parts))):
            pair = [tensors.get(f"{BASE}{theirs}.lora_{part}.weight") for part in "AB"]
            if pair[0] is None or pair[1] is None:
                continue
            a, b = (x.to(weight) for x in pair if x is not None)
            if (len(b), a.shape[1]) != tuple(rows.shape) or b.shape[1] != len(a):
                raise WeightsMismatchError(
                    f"{folder} does not fit the model: {theirs} is {rows.shape[0]} × {rows.shape[1]} here, and the "
                    f"adapter is for {len(b)} × {a.shape[1]}. Give the model that it was learned with."
                )
            rows += _scale(settings, theirs) * b @ a
            known |= {f"{BASE}{theirs}.lora_{part}.weight" for part in "AB"}
            found = True
        weight += change
        changed += found
    left = [key for key in tensors if key not in known and key not in heads]
    taken = {}
    for ours in own:
        try:
            (theirs,) = transformers_names(family, ours)[1]
        except (KeyError, ValueError):
            continue
        if f"{BASE}{theirs}" in heads and heads[f"{BASE}{theirs}"].shape == own[ours].shape:
            taken[ours] = heads.pop(f"{BASE}{theirs}").to(own[ours])
    if left or heads or not changed:
        which = [*left, *heads][:3] or ["lora_A"]
        raise WeightsMismatchError(
            f"{folder} does not fit the model, which has no place for {', '.join(which)}: give the model that it was "
            "learned with, and its head."
        )
    model.load_state_dict({**own, **taken})
    return changed


ADAPTER = {
    "peft_type": str, "r": COUNT, "lora_alpha": NUMBER, "use_rslora?": bool,
    "rank_pattern?": {...: Between(1, 2**31 - 1)}, "alpha_pattern?": {...: NUMBER},
}  # fmt: skip


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read adapter_config.json and the tensors. Raises FileError and ModelError as `merge_adapter`."""
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            raise FileError(f"{folder} holds no adapter of PEFT: it has no {file}.")
    settings = read_json(folder / CONFIG)
    validate_document(settings, ADAPTER, folder / CONFIG, "Take the adapter from where it came.")
    if settings["r"] == 0:
        raise FileError(f"{folder / CONFIG}: r is 0, and an adapter has a rank. Download it again.")
    if settings.get("peft_type") != "LORA":
        raise CheckpointConfigError(f"{folder} is a {settings.get('peft_type')} adapter. Supported: LORA.")
    for key, plain in PLAIN.items():
        if settings.get(key, plain) != plain:
            raise CheckpointConfigError(
                f"{folder} has {key}={settings[key]!r}, and {key}={plain!r} is what is read here."
            )
    try:
        _reject_wrong(settings)
    except ModelError as error:
        raise CheckpointConfigError(f"{folder}: {str(error).replace('config.json', CONFIG)}") from error
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise FileError(f"{folder / WEIGHTS} cannot be read: {error}") from error
    return settings, tensors


def _reject_wrong(settings: Mapping[str, Any]) -> None:
    """Raise ModelError for invalid ranks and scales."""
    for key in ("r", "lora_alpha"):
        if read_float(settings, key, 0) <= 0:
            raise CheckpointConfigError(
                f"config.json has {key}={format_json(settings.get(key))}, where a number above 0 belongs."
            )
    read_bool(settings, "use_rslora", False)
    for key in ("rank_pattern", "alpha_pattern"):
        pattern = settings.get(key) or {}
        if not isinstance(pattern, dict):
            raise CheckpointConfigError(
                f"config.json has {key}={format_json(pattern)}, where numbers by the names of layers belong."
            )
        for name, value in pattern.items():
            if read_float({f"{key} of {name}": value}, f"{key} of {name}", 0) <= 0:
                raise CheckpointConfigError(
                    f"config.json has {key} of {name}={format_json(value)}, where a number above 0 belongs."
                )


def _scale(settings: Mapping[str, Any], theirs: str) -> float:
    """Return α / r of a layer, or α / √r for rank-stabilized LoRA. Single layers may have separate values."""
    rank, alpha = settings["r"], settings["lora_alpha"]
    for key, pattern in (("rank_pattern", "r"), ("alpha_pattern", "alpha")):
        for name, value in (settings.get(key) or {}).items():
            if theirs == name or theirs.endswith(f".{name}"):
                rank, alpha = (value, alpha) if pattern == "r" else (rank, value)
    return float(alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank))


def _theirs(family: Family, layer: str) -> list[str]:
    """Return the names of our layer in transformers: one, several that are concatenated, or none without a rule."""
    try:
        names = transformers_names(family, f"{layer}.weight")[1]
    except KeyError:
        return []
    return [name.removesuffix(".weight") for name in names]
