"""Torchvision checkpoints: reading into our models and writing, tensor for tensor.

A checkpoint is a state dict in a `.pth` file (a pickle, read only by PyTorch's `weights_only` reader, which creates
only tensors and plain values) or in a `.safetensors` file. A file does not contain the name of its network. The caller
gives the preset, and the shapes define channels, classes, image size and auxiliary heads. `FAMILIES` maps our keys to
torchvision's. Reading inverts the map.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..core.errors import (
    CheckpointConfigError,
    FileError,
    ModelError,
    WeightsMismatchError,
    WriteError,
)
from ..core.files import atomic_write, require_regular_file
from ..core.memory_budget import build_on_meta
from ..models.registry import Preset, preset, presets
from .saving import load_weights, reject_not_finite

SUFFIXES = (".pth", ".pt", ".safetensors")
COUNTER = "num_batches_tracked"  # absent in files older than PyTorch 0.4.1
WRAPPERS = ("module.", "_orig_mod.")  # prefixes by DataParallel and torch.compile

# Fields that follow from a file or do not affect weights. They may differ from the preset.
FREE_FIELDS = ("in_channels", "num_classes", "image_size", "auxiliary", "dropout", "drop_path_rate", "recompute")

# Former names of tensors in older files, and their current names.
OLD_NAMES = (
    (r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2"),  # DenseNet, when names could contain dots
    (r"(mlp\.)linear_1\.", r"\g<1>0."),  # ViT, before torchvision 0.14
    (r"(mlp\.)linear_2\.", r"\g<1>3."),
)


# Torchvision builds these with transform_input=True for its own weights, which no key shows.
TRANSFORMED = ("googlenet", "inception-v3")


# --- names --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TorchvisionNames:
    """The presets of a family that torchvision has, and its names of their weights.

    Presets of a family whose weights have other names there than those of another preset are an entry of their own.
    """

    builders: Mapping[str, str]  # our preset → torchvision's builder
    # Pairs of a regular expression and its replacement, applied in order to our key; none if the names are equal.
    renames: tuple[tuple[str, str], ...] = ()


FAMILIES: Mapping[str, TorchvisionNames] = {
    # Layers are numbered as in the papers; torchvision's by index in two sequences. alexnet-2012 is not included:
    # torchvision's network has one tower and no normalization.
    "alexnet": TorchvisionNames(
        {"alexnet": "alexnet"},
        (
            (r"^conv1\.", "features.0."),
            (r"^conv2\.", "features.3."),
            (r"^conv3\.", "features.6."),
            (r"^conv4\.", "features.8."),
            (r"^conv5\.", "features.10."),
            (r"^fc6\.", "classifier.1."),
            (r"^fc7\.", "classifier.4."),
            (r"^fc8\.", "classifier.6."),
        ),
    ),
    # torchvision numbers downsampling, stages and the layers of a block. Downsampling and stage are two entries of one
    # sequence. Two of the numbers of a block are permutations.
    "convnext": TorchvisionNames(
        {f"convnext-{size}": f"convnext_{size}" for size in ("tiny", "small", "base")},
        (
            (r"^norm\.", "classifier.0."),
            (r"^head\.", "classifier.2."),
            (r"^stages\.0\.downsample\.conv\.", "features.0.0."),
            (r"^stages\.0\.downsample\.norm\.", "features.0.1."),
            *((rf"^stages\.{i}\.downsample\.norm\.", f"features.{2 * i}.0.") for i in range(1, 4)),
            *((rf"^stages\.{i}\.downsample\.conv\.", f"features.{2 * i}.1.") for i in range(1, 4)),
            *((rf"^stages\.{i}\.blocks\.", f"features.{2 * i + 1}.") for i in range(4)),
            (r"\.depthwise\.", ".block.0."),
            (r"\.norm\.", ".block.2."),
            (r"\.expand\.", ".block.3."),
            (r"\.project\.", ".block.5."),
        ),
    ),
    "deeplabv3": TorchvisionNames({"deeplabv3-resnet50": "deeplabv3_resnet50"}),
    # torchvision has everything except the head within `features`, which is a method here.
    "densenet": TorchvisionNames(
        {name: name for name in ("densenet121", "densenet161", "densenet169", "densenet201")},
        ((r"^(?!classifier\.)", "features."),),
    ),
    # torchvision numbers stages with the stem and the last convolution, and the layers of a block.
    "efficientnet": TorchvisionNames(
        {f"efficientnet-b{i}": f"efficientnet_b{i}" for i in range(3)},
        (
            (r"^head\.", "classifier.1."),
            (r"^stem\.conv\.", "features.0.0."),
            (r"^stem\.bn\.", "features.0.1."),
            (r"^last\.conv\.", "features.8.0."),
            (r"^last\.bn\.", "features.8.1."),
            (r"\.se\.squeeze\.", ".se.fc1."),
            (r"\.se\.excite\.", ".se.fc2."),
            # Blocks of the first stage have no expansion layer.
            (r"^stages\.0\.(\d+)\.depthwise\.", r"features.1.\1.block.0."),
            (r"^stages\.0\.(\d+)\.se\.", r"features.1.\1.block.1."),
            (r"^stages\.0\.(\d+)\.project\.", r"features.1.\1.block.2.0."),
            (r"^stages\.0\.(\d+)\.bn\.", r"features.1.\1.block.2.1."),
            *((rf"^stages\.{i}\.(\d+)\.", rf"features.{i + 1}.\1.block.") for i in range(1, 7)),
            (r"\.expand\.", ".0."),
            (r"\.depthwise\.", ".1."),
            (r"\.se\.", ".2."),
            (r"\.project\.", ".3.0."),
            (r"\.block\.bn\.", ".block.3.1."),
            (r"\.conv\.", ".0."),
            (r"\.bn\.", ".1."),
        ),
    ),
    "fcn": TorchvisionNames({"fcn-resnet50": "fcn_resnet50"}),
    # torchvision has the ResNet and the pyramid in a backbone, and both outputs in one head.
    "fcos": TorchvisionNames(
        {"fcos-resnet50": "detection.fcos_resnet50_fpn"},
        (
            (r"^body\.", "backbone.body."),
            (r"^pyramid\.lateral\.(\d+)", r"backbone.fpn.inner_blocks.\1.0"),
            (r"^pyramid\.smooth\.(\d+)", r"backbone.fpn.layer_blocks.\1.0"),
            (r"^pyramid\.extra\.0", "backbone.fpn.extra_blocks.p6"),
            (r"^pyramid\.extra\.1", "backbone.fpn.extra_blocks.p7"),
            (r"^class_tower", "head.classification_head.conv"),
            (r"^head\.(weight|bias)", r"head.classification_head.cls_logits.\1"),
            (r"^box_tower", "head.regression_head.conv"),
            (r"^distances", "head.regression_head.bbox_reg"),
            (r"^centerness", "head.regression_head.bbox_ctrness"),
        ),
    ),
    # googlenet-2014 is another network and is not included.
    "googlenet": TorchvisionNames({"googlenet": "googlenet"}),
    "inception_v3": TorchvisionNames({"inception-v3": "inception_v3"}),
    # The same indices in the sequence of layers; torchvision numbers the layers of a block.
    "mobilenet_v2": TorchvisionNames(
        {"mobilenet-v2": "mobilenet_v2"},
        (
            (r"^head\.", "classifier.1."),
            (r"^layers\.", "features."),
            (r"^features\.1\.depthwise\.", "features.1.conv.0."),  # the first block has no expansion layer
            (r"^features\.1\.project\.", "features.1.conv.1."),
            (r"^features\.1\.bn\.", "features.1.conv.2."),
            (r"\.expand\.", ".conv.0."),
            (r"\.depthwise\.", ".conv.1."),
            (r"\.project\.", ".conv.2."),
            (r"^(features\.(?!0\.|18\.)\d+)\.bn\.", r"\1.conv.3."),
            (r"\.conv\.(weight)$", r".0.\1"),
            (r"\.bn\.", ".1."),
        ),
    ),
    # torchvision numbers a convolution, its normalization and its ReLU, which have names here.
    "r3d": TorchvisionNames(
        {"r3d-18": "r3d_18"},
        (
            (r"^stem\.conv\.", "stem.0."),
            (r"^stem\.bn\.", "stem.1."),
            (r"\.downsample\.conv\.", ".downsample.0."),
            (r"\.downsample\.bn\.", ".downsample.1."),
            (r"\.conv([12])\.", r".conv\1.0."),
            (r"\.bn([12])\.", r".conv\1.1."),
        ),
    ),
    # resnet50-v1 and similar presets are not included, because they have other strides.
    "resnet": TorchvisionNames({name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")}),
    # Fire modules are numbered as in the paper; torchvision's by index in a sequence with the pooling layers, whose
    # places differ between 1.0 and 1.1.
    **{
        f"squeezenet-{version}": TorchvisionNames(
            {f"squeezenet-{version}": f"squeezenet{version.replace('.', '_')}"},
            (
                (r"^conv1\.", "features.0."),
                (r"^head\.", "classifier.1."),
                *((rf"^fire{fire}\.", f"features.{index}.") for fire, index in enumerate(indices, 2)),
            ),
        )
        for version, indices in (("1.0", (3, 4, 5, 7, 8, 9, 10, 12)), ("1.1", (3, 4, 6, 7, 9, 10, 11, 12)))
    },
    # The same indices in the sequence of convolutions; the fully connected layers are numbered from 6 here.
    "vgg": TorchvisionNames(
        {f"vgg{depth}{bn}": f"vgg{depth}{bn.replace('-', '_')}" for bn in ("", "-bn") for depth in (11, 13, 16, 19)},
        (
            (r"^convolutions\.", "features."),
            (r"^fc6\.", "classifier.0."),
            (r"^fc7\.", "classifier.3."),
            (r"^fc8\.", "classifier.6."),
        ),
    ),
    # torchvision has layers for blocks, ln for norm, and a packed parameter for queries, keys and values where a linear
    # layer stands here.
    "vit": TorchvisionNames(
        {"vit-base/16": "vit_b_16", "vit-base/32": "vit_b_32", "vit-large/16": "vit_l_16"},
        (
            (r"^patches\.", "conv_proj."),
            (r"^positions$", "encoder.pos_embedding"),
            (r"^norm\.", "encoder.ln."),
            (r"^head\.", "heads.head."),
            (r"^blocks\.(\d+)\.", r"encoder.layers.encoder_layer_\1."),
            (r"\.norm([12])\.", r".ln_\1."),
            (r"\.attention\.qkv\.", ".self_attention.in_proj_"),
            (r"\.attention\.out\.", ".self_attention.out_proj."),
            (r"\.mlp\.fc1\.", ".mlp.0."),
            (r"\.mlp\.fc2\.", ".mlp.3."),
        ),
    ),
}


@functools.cache
def torchvision_names() -> dict[str, str]:
    """Return every preset with the same weights in torchvision, and the name of its builder there."""
    return {preset: name for family in FAMILIES.values() for preset, name in family.builders.items()}


def torchvision_key(preset: str, key: str) -> str:
    """Return torchvision's key of our weight `key` of a preset."""
    for pattern, replacement in _renames(preset):
        key = re.sub(pattern, replacement, key)
    return key


@functools.cache
def _renames(preset: str) -> tuple[tuple[str, str], ...]:
    return next((family.renames for family in FAMILIES.values() if preset in family.builders), ())


# --- reading and writing ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class StateDict:
    """Named tensors of a file, on the CPU."""

    tensors: Mapping[str, Tensor]  # under their names in the file
    prefix: str = ""  # prefix by a wrapper
    notes: tuple[str, ...] = ()  # notes for the user


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Model loaded from a checkpoint."""

    model: nn.Module
    preset: Preset
    key_map: Mapping[str, str]  # the checkpoint's key → ours
    notes: tuple[str, ...] = ()  # notes for the user


def read_checkpoint(path: str | os.PathLike[str], name: str) -> Loaded:
    """Load a torchvision checkpoint into the model of the preset `name`, in eval mode.

    The random state of torch is not changed. Raises ModelError if torchvision has no such network. Raises FileError,
    with the first missing, unexpected and misshapen key, if the file is not a state dict of this network.
    """
    found = _require_preset(name)
    file = read_state_dict(path)
    config = _infer_config(file, found)
    key_map, problems = _match(file, found, config)
    if problems:
        raise WeightsMismatchError(f"{path} does not fit {name}: {'; '.join(problems)}. {_suggestion(file, name)}")
    reject_not_finite({theirs: file.tensors[theirs] for theirs in key_map}, path)
    with torch.random.fork_rng(devices=[]):
        model = found.build(config)
    counters = {k: torch.tensor(0) for k in model.state_dict() if k.endswith(COUNTER) and k not in key_map.values()}
    load_weights(model, {ours: file.tensors[theirs] for theirs, ours in key_map.items()} | counters, path)
    notes = file.notes
    if counters:
        notes += (f"{len(counters)} counters {COUNTER}, which old files do not have, begin at 0; no output uses them.",)
    if name in TRANSFORMED:
        notes += (
            f"If these are the weights that torchvision publishes for {name}, images are normalised for them with mean "
            "0.5 and standard deviation 0.5 in every channel.",
        )
    return Loaded(model.eval(), found, key_map, notes)


def write_checkpoint(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, str]:
    """Write a model to a `.pth` or `.safetensors` file for torchvision's network.

    Returns the key map, ours → theirs. Raises ModelError if torchvision has no such network, FileError if the file
    cannot be written.
    """
    path = Path(path)
    name = matching_preset(model)
    if path.suffix not in SUFFIXES:
        raise WriteError(f"{path} has no suffix that says what to write: give {', '.join(SUFFIXES)}.")
    key_map = {ours: torchvision_key(name, ours) for ours in model.state_dict()}
    state = {key_map[ours]: v.detach().cpu().contiguous() for ours, v in model.state_dict().items()}
    with atomic_write(path) as temporary:
        try:
            if path.suffix == ".safetensors":
                save_file(state, temporary, {"format": "pt"})
            else:
                torch.save(state, temporary)
        except (SafetensorError, RuntimeError) as error:  # a full disk, for one
            raise OSError(str(error)) from error
    return key_map


def matching_preset(model: nn.Module) -> str:
    """Return the preset with the same weights in torchvision, for any channels, classes and image size of the model.

    Raises ModelError if torchvision has no such network.
    """
    for name in torchvision_names():
        same = preset(name)
        if isinstance(model, same.module.Model):
            config: Any = model.config
            free = {field: getattr(config, field) for field in FREE_FIELDS if hasattr(config, field)}
            if dataclasses.replace(same.config, **free) == config:
                return name
    raise CheckpointConfigError(
        f"torchvision has no network like this {type(model).__name__}. It has: {', '.join(torchvision_names())}, with "
        "any number of input channels and classes and no other setting changed."
    )


# --- files --------------------------------------------------------------------------------------------------------


def read_state_dict(path: str | os.PathLike[str]) -> StateDict:
    """Read the named tensors of a `.pth` or `.safetensors` file on the CPU.

    A state dict that is one entry of the file is extracted, and the prefix of a wrapper is removed; `notes` report
    both. Raises FileError if there is no state dict, or more than one.
    """
    found = _read(Path(path))
    notes: tuple[str, ...] = ()
    if not _is_state_dict(found):
        entries = [k for k, v in found.items() if _is_state_dict(v)] if isinstance(found, Mapping) else []
        if len(entries) != 1:
            several = f", and those under {' and '.join(map(str, entries))} could each be it" if entries else ""
            raise FileError(
                f"{path} is not a state dict, a table of named tensors: it holds {_describe(found)}{several}. "
                "Save the model's state_dict() alone."
            )
        notes = (f"The weights are those under {entries[0]!r}; other entries of the file are not read.",)
        found = found[entries[0]]
    prefix = _wrapper_prefix(found)
    if prefix:
        notes += (f"Every key begins with {prefix!r}, which a wrapper put there; it is left out.",)
    return StateDict(dict(found), prefix, notes)


def _read(path: Path) -> Any:
    require_regular_file(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # invalid files raise many types of errors, which depend on the reader
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "Weights only load failed" in reason:
            reason = "it holds more than tensors and plain values, or is cut short; no code in it was run"
        raise FileError(f"{path} is not a checkpoint that can be read: {reason}.") from error


def _is_state_dict(found: Any) -> bool:
    return (
        isinstance(found, Mapping)
        and len(found) > 0
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in found.items())
    )


def _describe(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"the keys {', '.join(map(str, list(found)[:5]))}" if found else "nothing"
    return f"one {type(found).__name__}"


def _wrapper_prefix(keys: Mapping[str, Any]) -> str:
    """Return the prefix by wrappers of all keys. Several can be nested."""
    prefix = ""
    while more := next((w for w in WRAPPERS if all(k.startswith(prefix + w) for k in keys)), ""):
        prefix += more
    return prefix


# --- matching -----------------------------------------------------------------------------------------------------


def _match(file: StateDict, found: Preset, config: Any) -> tuple[dict[str, str], list[str]]:
    """Return the map from the file's keys to ours, and the problems with the file's names; empty if it fits."""
    shapes = _shapes(found, config)
    key_map = {theirs: ours for theirs, ours in _ours(file, found, config).items() if ours in shapes}
    taken = set(key_map.values())
    missing = [torchvision_key(found.name, k) for k in shapes if k not in taken and not k.endswith(COUNTER)]
    unexpected = [k for k in file.tensors if k not in key_map]
    misshapen = [k for k, ours in key_map.items() if file.tensors[k].shape != shapes[ours]]
    problems = []
    if missing:
        said = f"the first {file.prefix}{missing[0]}"
        problems.append(f"{len(missing)} of the network's {len(shapes)} tensors are missing, {said}")
    if unexpected:
        problems.append(f"{len(unexpected)} are not the network's, the first {unexpected[0]}")
    if misshapen:
        first = misshapen[0]
        there, here = tuple(file.tensors[first].shape), tuple(shapes[key_map[first]])
        problems.append(f"{len(misshapen)} have another shape, the first {first}: {there} where the network has {here}")
    return key_map, problems


def _ours(file: StateDict, found: Preset, config: Any) -> dict[str, str]:
    """Return the map from the file's keys to ours, for keys of the network."""
    inverse = {torchvision_key(found.name, ours): ours for ours in _shapes(found, config)}
    renamed: dict[str, str] = {}
    for key in file.tensors:
        name = key.removeprefix(file.prefix)
        if name not in inverse:
            for pattern, replacement in OLD_NAMES:
                name = re.sub(pattern, replacement, name)
        if name in inverse and (name == key.removeprefix(file.prefix) or file.prefix + name not in file.tensors):
            renamed[key] = inverse[name]
    return renamed


def _infer_config(file: StateDict, found: Preset) -> Any:
    """Return the preset's config with the values from the file.

    Other values are unchanged, and `_match` reports problems.
    """
    config: Any = found.config
    if hasattr(config, "auxiliary"):
        with_heads, without = (dataclasses.replace(config, auxiliary=there) for there in (True, False))
        heads = _shapes(found, with_heads).keys() - _shapes(found, without).keys()
        there = not heads.isdisjoint(_ours(file, found, with_heads).values())
        config = with_heads if there else without
    sizes = {ours: tuple(file.tensors[theirs].shape) for theirs, ours in _ours(file, found, config).items()}
    own = _shapes(found, dataclasses.replace(config, auxiliary=False) if hasattr(config, "auxiliary") else config)
    told: dict[str, int] = {}
    stem = sizes.get(next(k for k, shape in own.items() if len(shape) >= 4), ())
    dense = [k for k, shape in own.items() if len(shape) == 2]
    convolutions = [k for k, shape in own.items() if len(shape) == 4]
    head = sizes.get(dense[-1] if dense else "head.weight" if "head.weight" in own else convolutions[-1], ())
    if len(stem) >= 4:  # a convolution, with 5 dimensions for videos
        told["in_channels"] = stem[1]
    if len(head) == (2 if dense else 4):
        told["num_classes"] = head[0]
    if hasattr(config, "image_size"):
        told |= _image_size(sizes, found, config)
    try:
        return dataclasses.replace(config, **told)
    except ModelError:  # for example no channels
        return config


def _image_size(sizes: Mapping[str, tuple[int, ...]], found: Preset, config: Any) -> dict[str, int]:
    """Return the image size of a position table, which has a row for each patch and a fixed number of others."""
    step = config.size_step
    own = _shapes(found, config)
    larger = _shapes(found, dataclasses.replace(config, image_size=config.image_size + step))
    table = next(k for k, shape in own.items() if shape != larger[k])
    beside = own[table][1] - math.ceil(config.image_size / step) ** 2
    given = sizes.get(table, ())
    patches = given[1] - beside if len(given) == 3 else 0
    side = math.isqrt(max(patches, 0))
    return {"image_size": side * step} if patches > 0 and side**2 == patches else {}


@functools.cache
def _shapes(found: Preset, config: Any) -> Mapping[str, torch.Size]:
    """Return the network's tensor shapes by our names, without allocating memory."""
    return {k: v.shape for k, v in build_on_meta(found, config).state_dict().items()}


def _suggestion(file: StateDict, name: str) -> str:
    likely = likely_preset(file)
    if likely:
        return f"Its tensors are those of {likely}: read it as {likely}."
    if {k.removeprefix(file.prefix) for k in file.tensors} == set(_shapes(preset(name), preset(name).config)):
        return "Its names are those of Cutaway: give the folder that it is in."
    return "It was written by another model, or not by torchvision, or is not whole."


def likely_preset(file: StateDict, network: type[nn.Module] | None = None) -> str | None:
    """Return the preset whose names and shapes fit the file, or None.

    Only presets of `network` are tried if it is given.
    """
    for name in torchvision_names():
        found = preset(name)
        if network in (None, found.network) and not _match(file, found, _infer_config(file, found))[1]:
            return name
    return None


def _require_preset(name: str) -> Preset:
    found = preset(name)
    if name not in torchvision_names():
        near = name.removesuffix("-v1")
        raise CheckpointConfigError(
            f"torchvision has no checkpoint of {name}. "
            + (
                f"Its weights are those of {near}, the network with other strides: read them as {near}."
                if near in torchvision_names()
                else f"It has them of: {', '.join(n for n in presets() if n in torchvision_names())}."
            )
        )
    return found
