"""Every preset as a model that is small enough to be run in a test, with an input of its kind."""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch import Tensor, nn

from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes
from cutaway.inspect.example_inputs import example_inputs, example_shape, input_modality
from cutaway.models.registry import Preset, presets
from cutaway.verify import compared_config

NAMES = tuple(presets())
GRAPHS = {  # of nodes and of whole graphs
    p.module.__name__.rpartition(".")[2]: p.module
    for p in presets().values()
    if p.takes == ("graph",) and Classes in p.targets
}


def _way(value: object) -> object:
    """What a setting decides, less how much: True, "relu" and None as they are, every number as any other."""
    if isinstance(value, tuple):
        return tuple(sorted({repr(_way(one)) for one in value}))
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _different() -> tuple[str, ...]:
    first: dict[object, str] = {}
    for preset in presets().values():
        fields = dataclasses.fields(preset.config)
        ways = tuple((field.name, _way(getattr(preset.config, field.name))) for field in fields)
        first.setdefault((preset.module, ways), preset.name)
    return tuple(first.values())


# Of presets that differ in numbers alone, such as depth and width, the first: a probe or a view of ResNet-18 does what
# it does of ResNet-34. Counts, outputs and gradients are held for all of NAMES.
DIFFERENT = _different()
# Pixels to a side that are enough, by how the name begins; else 32.
LEAST = {"vgg": 32, "alexnet": 67, "googlenet": 64, "inception": 96, "densenet": 64, "resnet": 64}
TOKENS, FRAMES = 7, 60  # in an example of text, and of audio
# What a field of a small config is at most.
MOST = {
    "vocab_size": 40,
    "num_classes": 5,
    "horizon": 5,
    "target_vocab_size": 5,
    "layers": 3,
    "width": 8,
    "growth_rate": 4,
    "hidden_dim": 32,
    "ffn_dim": 64,
}


def of_family(family: str) -> list[str]:
    """Those of DIFFERENT whose cards name this family."""
    return [name for name in DIFFERENT if presets()[name].module.CARD.family == family]


def small_config(name: str) -> object:
    """The preset's config made small, of the same kind."""
    config = compared_config(name, presets()[name].config)
    given = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    most = MOST | {"dim": 8 * given.get("heads", 4), "image_size": 4 * (given.get("patch_size") or 8)}
    changes: dict[str, object] = {
        field: most[field]
        for field, value in given.items()
        if isinstance(value, int) and value > most.get(field, value)
    }
    if isinstance(given.get("layers"), tuple):
        changes["layers"] = tuple(min(count, 2) for count in given["layers"])
    if "width_mult" in given:
        changes["width_mult"] = 0.25
    if "squeeze_ratio" in given:
        changes["squeeze_ratio"] = 0.5  # of 8 channels one in eight would be a single ReLU, which gives 0 everywhere
    if max(given.get("widths", (0,))) > 64:
        changes["widths"] = tuple(width // 8 for width in given["widths"])
    return dataclasses.replace(config, **changes)


@functools.cache
def meta(name: str) -> nn.Module:
    """The preset, small, with shapes and no numbers: for a look at its modules, in a moment."""
    return build_on_meta(presets()[name], small_config(name))


def small_shape(found: Preset, config: object) -> tuple[int, ...]:
    """The shape of one example, as small as the model takes it."""
    kind = input_modality(found, config)
    shape = example_shape(found, config)
    if kind in ("text", "seq2seq"):
        return (min(TOKENS, *shape),)
    if kind == "audio":
        return (min(FRAMES, shape[0]), shape[1])
    if kind == "graph":
        return (12, shape[1])
    if kind == "image" and getattr(config, "image_size", None) is None:
        least = next((side for start, side in LEAST.items() if found.name.startswith(start)), 32)
        return (shape[0], *(min(side, least) for side in shape[1:]))
    if kind == "video":
        return (4, shape[1], *(min(side, getattr(config, "image_size", 24)) for side in shape[2:]))
    return shape


def small(name: str, count: int = 2, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The preset, small, in evaluation mode with weights of seed 0, and `count` random examples."""
    found, config = presets()[name], small_config(name)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = found.network(config).to(dtype).eval()  # not `build`, which counts it first, in twice the time
    generator = torch.Generator().manual_seed(1)
    inputs = example_inputs(found, config, small_shape(found, config), count=count, generator=generator)
    return model, tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
