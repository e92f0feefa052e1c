"""Folders of diffusers with a UNet2DModel, config.json and diffusion_pytorch_model.safetensors, read and written.

In diffusers the noise schedule is not part of the network. It is written to scheduler_config.json, so that
`DDPMScheduler.from_pretrained(OUT)` and DDIMScheduler add noise as in training, and it is read if the file exists. In
the folder of a pipeline the network is in unet/ and the schedule in scheduler/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ..core.errors import CheckpointConfigError, FileError, ModelError, UnsafeFileError, WeightsMismatchError
from ..core.files import atomic_dir, read_json, write_json
from ..core.memory_budget import build_on_meta
from ..core.schema import validate_document
from ..models.ddpm_unet import DDPM, PRESETS, Config
from ..models.registry import Preset, preset
from ..nn.diffusion import FIRST, LAST
from .huggingface.config_files import format_json, read_float, read_int, reject_others, use_transformers_names
from .huggingface.folders import to_single
from .match_config import closest_preset
from .saving import CONFIG, find_mismatches, load_weights, open_safetensors, reject_pickle

CLASS = "UNet2DModel"
WEIGHTS, SCHEDULER = "diffusion_pytorch_model.safetensors", "scheduler_config.json"
NETWORK, SCHEDULE = "unet", "scheduler"  # subfolders of a pipeline
SCHEDULES = {"linear": "linear", "cosine": "squaredcos_cap_v2"}  # ours to theirs

# Fields without a counterpart in our Config. The first value is written; all of them are supported.
FIXED: Mapping[str, tuple[Any, ...]] = {
    "act_fn": ("silu", "swish"),
    "add_attention": (True,),
    "attention_head_dim": (None,),
    "attn_norm_num_groups": (None,),
    "center_input_sample": (False,),
    "class_embed_type": (None,),
    "downsample_padding": (0,),
    "downsample_type": ("conv",),
    "flip_sin_to_cos": (False,),
    "freq_shift": (1,),
    "mid_block_scale_factor": (1,),
    "mid_block_type": ("UNetMidBlock2D",),
    "norm_eps": (1e-6,),
    "resnet_time_scale_shift": ("default",),
    "time_embedding_dim": (None,),
    "time_embedding_type": ("positional",),
    "upsample_type": ("conv",),
}
# Defaults of diffusers for missing fields that differ from the values written here.
DEFAULTS = {
    "attention_head_dim": 8,
    "downsample_padding": 1,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "norm_eps": 1e-5,
}
# The same for fields that define how noise is added. Sampling defines how it is removed.
SCHEDULE_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "beta_start": (FIRST,),
    "beta_end": (LAST,),
    "prediction_type": ("epsilon",),
    "rescale_betas_zero_snr": (False,),
    "thresholding": (False,),
    "trained_betas": (None,),
}

# Fields of image sampling that are fixed here. The number of steps is a setting of sampling.
SAMPLING_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "_class_name": ("DDPMScheduler", "DDIMScheduler"),
    "clip_sample": (True,),
    "clip_sample_range": (1.0,),
    "variance_type": ("fixed_small", "fixed_small_log"),
    "set_alpha_to_one": (True,),
}

BLOCK = {"time": "time_emb_proj", "shortcut": "conv_shortcut"}  # our names → theirs within a residual block
TOP_LEVEL_NAMES = {
    "time1": "time_embedding.linear_1",
    "time2": "time_embedding.linear_2",
    "classes": "class_embedding",
    "stem": "conv_in",
    "middle1": "mid_block.resnets.0",
    "middle2": "mid_block.resnets.1",
    "middle_attention": "mid_block.attentions.0",
    "norm": "conv_norm_out",
    "head": "conv_out",
}
MOST_STEPS = 100_000
OLD_NAMES = {
    "query": "to_q",
    "key": "to_k",
    "value": "to_v",
    "proj_attn": "to_out.0",
}  # names of attention in older files


@dataclass(frozen=True)
class Loaded:
    """Model loaded from a folder."""

    model: nn.Module
    preset: Preset
    key_map: Mapping[str, str]  # their names → ours
    notes: tuple[str, ...]  # notes for the user


def is_diffusers(path: Path) -> bool:
    """Return whether this is a folder of diffusers, with a network or a whole pipeline."""
    file = _network(path) / CONFIG
    try:
        document = read_json(file) if file.is_file() else None
    except FileError:
        return False
    return isinstance(document, dict) and "_class_name" in document


def read_diffusers(path: Path, name: str | None = None) -> Loaded:
    """Load the model of a folder in eval mode.

    Its preset is `name`, or the one with the closest config. Raises ModelError for an unsupported network, FileError if
    the weights are missing or do not fit.
    """
    if name is not None and name not in PRESETS:
        raise CheckpointConfigError(f"{path} holds a {CLASS}, not a {name}: read it as {' or '.join(PRESETS)}.")
    folder = _network(path)
    try:
        config, notes = _config(read_json(folder / CONFIG), _schedule(path))
    except ModelError as error:
        said = use_transformers_names(CLASS, str(error).removeprefix("config.json has "))
        raise CheckpointConfigError(f"{folder}: {said}") from error
    found = preset(name) if name is not None else closest_preset(config, map(preset, PRESETS))
    file = folder / WEIGHTS
    if not file.is_file():
        raise UnsafeFileError(
            f"{folder} has a {CONFIG} and no {WEIGHTS}. Pickles (.bin) are not opened: let diffusers write one, by "
            f"{CLASS}.from_pretrained(IN).save_pretrained(OUT)."
        )
    reject_pickle(file)
    with open_safetensors(file) as opened:
        found_in_file = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118  # no mapping
    theirs = {_current_name(key): tensor for key, tensor in found_in_file.items()}
    if len(theirs) < len(found_in_file):
        twice = next(key for key in found_in_file if _current_name(key) != key and _current_name(key) in found_in_file)
        raise FileError(
            f"{file} has {twice} and {_current_name(twice)}, which are two names of one tensor: keep one of them."
        )
    if config.layers > len(theirs):
        raise FileError(f"{file} has {len(theirs)} tensors, which is not enough for layers_per_block={config.layers}.")
    ours = {key: diffusers_names(key) for key in build_on_meta(found, config).state_dict()}
    tensors = {key: torch.cat([theirs.pop(n) for n in n_]) for key, n_ in ours.items() if all(n in theirs for n in n_)}
    if problems := find_mismatches(build_on_meta(found, config).state_dict(), tensors | theirs):
        raise WeightsMismatchError(
            f"{file} does not fit the network of its {CONFIG}: {'; '.join(problems)}. Take both again."
        )
    with torch.random.fork_rng(devices=[]):
        model = found.build(config)
    tensors, halves = to_single(tensors)
    load_weights(model, tensors, file)
    return Loaded(model.eval(), found, {their: key for key, n_ in ours.items() for their in n_}, (*notes, *halves))


def write_diffusers(model: nn.Module, path: Path, sides: tuple[int, int] | None = None) -> dict[str, str]:
    """Write DDPM's U-Net atomically as a folder for diffusers' from_pretrained, and return the key map, ours → theirs.

    `sides` are the height and width of its images, if known. Raises ModelError if diffusers has no such network,
    FileError if the folder exists or cannot be written.
    """
    if not isinstance(model, DDPM):
        raise CheckpointConfigError(
            f"diffusers has no network like {type(model).__name__}, so it has no form there. These have: "
            f"{', '.join(PRESETS)}."
        )
    with atomic_dir(path) as folder:
        write_json(folder / CONFIG, _settings(model.config, sides))
        write_json(folder / SCHEDULER, _scheduler(model.config))
        tensors = {k: v.detach().cpu().contiguous() for k, v in to_diffusers_names(model.state_dict()).items()}
        try:
            # Views of a larger tensor are written as separate tensors.
            save_file({k: v.clone() for k, v in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(str(error)) from error
    return {key: ", ".join(diffusers_names(key)) for key in model.state_dict()}


def to_diffusers_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our named tensors, weights or gradients, under diffusers' names."""
    found: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        names = diffusers_names(key)
        found |= dict(zip(names, tensor.chunk(len(names)) if len(names) > 1 else (tensor,)))
    return found


def diffusers_names(name: str) -> list[str]:
    """Return the names of one of our tensors in diffusers. Queries, keys and values are three tensors there."""
    first, _, rest = name.partition(".")
    name = f"{TOP_LEVEL_NAMES.get(first, first)}.{rest}"
    name = re.sub(r"^(down|up)sample\.(\d+)\.conv", r"\1_blocks.\2.\1samplers.0.conv", name)
    name = re.sub(r"^(down|up)\.(\d+)\.blocks", r"\1_blocks.\2.resnets", name)
    name = re.sub(r"^(down|up)\.(\d+)\.attentions", r"\1_blocks.\2.attentions", name)
    name = re.sub(r"(attentions\.\d+)\.norm\.", r"\1.group_norm.", name)
    name = re.sub(r"(attentions\.\d+)\.out\.", r"\1.to_out.0.", name)
    name = re.sub(r"(resnets\.\d+)\.(time|shortcut)\.", lambda m: f"{m[1]}.{BLOCK[m[2]]}.", name)
    return [name.replace("qkv", f"to_{which}") for which in "qkv"] if ".qkv." in name else [name]


def _current_name(name: str) -> str:
    """Return the current name of a tensor in diffusers."""
    return re.sub(r"(attentions\.\d+\.)(\w+)\.", lambda m: f"{m[1]}{OLD_NAMES.get(m[2], m[2])}.", name)


def _network(path: Path) -> Path:
    """Return the folder of the network, which is a subfolder of a pipeline."""
    return path / NETWORK if (path / NETWORK / CONFIG).is_file() else path


def _schedule(path: Path) -> Mapping[str, Any] | None:
    """Return the config of the noise schedule, or None if the folder has no such file."""
    files = [path / SCHEDULER, path / SCHEDULE / SCHEDULER]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        return None
    schedule: Mapping[str, Any] = read_json(found)
    validate_document(schedule, {}, found, "Take the folder from where it came.")
    return schedule


def _settings(config: Config, sides: tuple[int, int] | None) -> dict[str, Any]:
    """Return the content of config.json."""
    kinds = ["Attn" * (level in config.attention_levels) for level in range(1, len(config.widths) + 1)]
    return {
        "_class_name": CLASS,
        "sample_size": None if sides is None else sides[0] if len({*sides}) == 1 else list(sides),
        "in_channels": config.in_channels,
        "out_channels": config.in_channels,
        "block_out_channels": list(config.widths),
        "layers_per_block": config.layers,
        "down_block_types": [f"{kind}DownBlock2D" for kind in kinds],
        "up_block_types": [f"{kind}UpBlock2D" for kind in reversed(kinds)],
        "norm_num_groups": config.groups,
        "dropout": config.dropout,
        "num_class_embeds": config.classes + 1 if config.classes else None,
        **{field: known[0] for field, known in FIXED.items()},
    }


def _scheduler(config: Config) -> dict[str, Any]:
    """Return the content of scheduler_config.json."""
    return {
        "_class_name": "DDPMScheduler",
        "num_train_timesteps": config.timesteps,
        "beta_schedule": SCHEDULES[config.noise_schedule],
        "variance_type": "fixed_small",
        "clip_sample": True,
        "timestep_spacing": "linspace",
        **{field: known[0] for field, known in SCHEDULE_FIELDS.items()},
    }


def _config(theirs: Any, schedule: Mapping[str, Any] | None) -> tuple[Config, tuple[str, ...]]:
    """Convert the config of diffusers to ours, with notes. Raises ModelError for unsupported values."""
    if not isinstance(theirs, dict) or theirs.get("_class_name") != CLASS:
        what = (
            f"_class_name={format_json(theirs.get('_class_name'))}"
            if isinstance(theirs, dict)
            else "nothing that was named"
        )
        raise CheckpointConfigError(f"config.json has {what}, and of diffusers' networks {CLASS} is here.")
    theirs = {**DEFAULTS, **theirs}
    for field, known in FIXED.items():
        reject_others(theirs, field, known)
    widths, kinds = theirs.get("block_out_channels"), theirs.get("down_block_types")
    mirrored = [str(kind).replace("Down", "Up") for kind in reversed(kinds)] if isinstance(kinds, list) else None
    named = isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
    if not isinstance(widths, list) or not named or len(widths) != len(kinds):
        raise CheckpointConfigError("config.json has no block_out_channels and down_block_types of one length.")
    if {*kinds} - {"DownBlock2D", "AttnDownBlock2D"} or theirs.get("up_block_types") != mirrored:
        raise CheckpointConfigError(
            f"config.json has down_block_types={format_json(kinds)} and"
            f" up_block_types={format_json(theirs.get('up_block_types'))}: known are DownBlock2D and AttnDownBlock2D,"
            " and on the way up the same in reverse."
        )
    channels, embedded = read_int(theirs, "in_channels", 3), theirs.get("num_class_embeds")
    if channels < 1:
        raise CheckpointConfigError(f"config.json has in_channels={channels}, where at least 1 belongs.")
    reject_others(theirs, "out_channels", (channels,))
    steps, noise = 1000, "linear"
    notes: tuple[str, ...] = ()
    if schedule is None:
        notes = (f"It has no {SCHEDULER}: noise is taken to be added in 1 000 steps, with the linear schedule.",)
    else:
        for field, known in SCHEDULE_FIELDS.items():
            reject_others(schedule, field, known, SCHEDULER)
        reject_others(schedule, "beta_schedule", tuple(SCHEDULES.values()), SCHEDULER)
        steps = read_int(schedule, "num_train_timesteps", 1000, SCHEDULER)
        if steps > MOST_STEPS:
            raise CheckpointConfigError(
                f"{SCHEDULER} has num_train_timesteps={steps}, and more than {MOST_STEPS:,} are not read."
            )
        noise = next(k for k, v in SCHEDULES.items() if v == schedule.get("beta_schedule", "linear"))
        notes = tuple(
            f"{SCHEDULER} has {field}={format_json(schedule[field])}; images are drawn here with"
            f" {format_json(here[0])}."
            for field, here in SAMPLING_FIELDS.items()
            if field in schedule and schedule[field] not in here
        )
    config = Config(
        in_channels=channels,
        classes=0 if embedded is None else read_int(theirs, "num_class_embeds", 0) - 1,
        widths=tuple(read_int({"block_out_channels": width}, "block_out_channels", 0) for width in widths),
        layers=read_int(theirs, "layers_per_block", 2),
        attention_levels=tuple(level for level, kind in enumerate(kinds, 1) if kind.startswith("Attn")),
        groups=read_int(theirs, "norm_num_groups", 32),
        dropout=read_float(theirs, "dropout", 0.0),
        timesteps=steps,
        noise_schedule=noise,
    )
    return config, notes
