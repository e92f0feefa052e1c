"""Parameter groups: heads, frozen layers, distances from the head, and low-rank adaptation (LoRA)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from torch import nn

from ..core.config import as_text, shorten
from ..core.errors import SettingError, closest_names
from ..core.spec import Spec, TokenTarget
from ..models.base import as_base_model
from ..nn.lora import adapt, adaptable
from ..nn.transformer import is_block
from .config import TrainSettings

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
BLOCK_FRACTION = 0.02  # smallest fraction of the parameters in a layer that is its own block
HEAD = "head"  # name of the child that is the head
PROJECTION = "projection"  # name of the child before the head during contrastive training
BACKBONE_FRACTION = 0.9  # a child with more of the parameters is the whole backbone and is split


def output_layers(model: nn.Module) -> list[str]:
    """Return the names of the output layers.

    These are the child `head` if there is one, else the last linear layer or convolution, and the last layer of each
    auxiliary head, which is a child whose name begins with aux.
    """
    layers = [name for name, module in model.named_modules() if isinstance(module, LAYERS)]
    last = {auxiliary_head(name): name for name in layers if name.split(".")[0] != PROJECTION}
    if isinstance(getattr(model, HEAD, None), nn.Module):
        last[""] = HEAD
    return list(last.values())


def auxiliary_head(name: str) -> str:
    """Return the child that is the auxiliary head containing `name`, or an empty string."""
    child = name.split(".")[0]
    return child if child.lower().startswith("aux") else ""


def backbone_names(model: nn.Module) -> set[str]:
    """Return the names of all parameters and modules except the heads and what belongs only to auxiliary heads.

    For a model that is built on another network, these are the names within that network, since everything after it is
    the head.
    """
    names = {name for name, _ in [*model.named_parameters(), *model.named_modules()] if name}
    if (built_on := as_base_model(model).built_on) is not None:
        return {name for name in names if built_on[0] in _enclosing_names(name)}
    ends = set(output_layers(model))
    return {name for name in names if not auxiliary_head(name) and ends.isdisjoint(_enclosing_names(name))}


def match_frozen(model: nn.Module, patterns: Sequence[str]) -> set[str]:
    """Return the names of parameters and modules that the patterns match.

    `conv1` is everything in that module, `layer*` all modules with such names, `*.bias` all such parameters. Raises
    SettingError for a pattern without a match.
    """
    names = [name for name, _ in [*model.named_modules(), *model.named_parameters()] if name]
    found: set[str] = set()
    for pattern in patterns:
        meant = {name for name in names if any(fnmatchcase(part, pattern) for part in _enclosing_names(name))}
        if not meant:
            near = closest_names(pattern, names) or [name for name, _ in model.named_children()]
            raise SettingError(
                f"freeze={shorten(as_text(tuple(patterns)))}: no layer has a name like {shorten(pattern)!r}. "
                f"There are {', '.join(near[:5])}; `cutaway show` lists them all."
            )
        found |= meant
    return found


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether any layer is batch normalization."""
    return any(isinstance(module, NORMS) for module in model.modules())


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the consecutive parts of the model that hold most of its weights.

    These are the blocks of a Transformer, and in other models the larger layers, or blocks of layers, of a
    `Sequential`. They are not nested.
    """
    least = BLOCK_FRACTION * sum(p.numel() for p in model.parameters())
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for module in model.modules():
        parts = module.children() if isinstance(module, nn.Sequential) else []
        for one in [module] if is_block(module) else parts:
            large = is_block(one) or sum(p.numel() for p in one.parameters()) >= least
            if large and one not in inside and not isinstance(one, nn.Sequential):
                found.append(one)
                inside |= set(one.modules())
    return found


def set_trainable(model: nn.Module, learnable: Collection[str], still: Collection[str]) -> None:
    """Set training mode, and `requires_grad` for the `learnable` parameters except those that are `still`.

    A batch norm keeps its statistics if it is `still` itself, or all its parameters are.
    """
    model.train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in learnable and name not in still)
    for name, module in model.named_modules():
        if isinstance(module, NORMS):
            own = [f"{name}.{key}" for key, _ in module.named_parameters()]
            if name in still or (own and all(key in still for key in own)):
                module.eval()


def layer_depths(model: nn.Module) -> dict[str, int]:
    """Return the distance of each parameter from the head in groups of layers, 0 for the heads.

    The groups are the model's children in order. A child with nearly all of the backbone's parameters is split into its
    own children, and so is a list of Transformer blocks. A child with vectors alone, such as a norm, belongs to the
    group before it. An auxiliary head is a head.
    """
    rest = backbone_names(model)
    total = sum(p.numel() for name, p in model.named_parameters() if name in rest)
    sets = [[name for name in group if name in rest] for group in _groups(model, "", BACKBONE_FRACTION * total)]
    sets = [group for group in sets if group]
    found = {name: len(sets) - i for i, group in enumerate(sets) for name in group}
    return {name: found.get(name, 0) for name, _ in model.named_parameters()}


def _groups(module: nn.Module, prefix: str, large: float) -> list[list[str]]:
    """Return the parameter names of each group in `module`, whose own name is `prefix`, from input to output.

    Parameters of the module itself, such as positions, belong to its first group.
    """
    groups = [[prefix + name for name, _ in module.named_parameters(recurse=False)]]
    for name, child in module.named_children():
        inside = {f"{prefix}{name}.{key}": p for key, p in child.named_parameters()}
        if not prefix and auxiliary_head(name):
            continue
        stack = isinstance(child, nn.ModuleList) and all(map(is_block, child))
        if (stack or sum(p.numel() for p in inside.values()) > large) and any(child.children()):
            groups += _groups(child, f"{prefix}{name}.", large)
        elif all(p.ndim < 2 for p in inside.values()) and any(groups):
            groups[-1] += inside
        else:
            groups.append(list(inside))
    own, *rest = groups
    return [own + rest[0], *rest[1:]] if rest else [own]


def _enclosing_names(name: str) -> Iterator[str]:
    """Yield the name and those of all modules that contain it: a.b.c, a.b, a."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def add_lora(model: nn.Module, spec: Spec, settings: TrainSettings) -> list[str]:
    """Add LoRA to layers of the model (`nn.lora`), and return a note on the number of trainable parameters.

    Raises SettingError if the model has no pretrained weights, or no such layers.
    """
    assert settings.lora is not None
    if not settings.weights:
        raise SettingError(
            f"lora={settings.lora} keeps the weights as they begin, and without weights they begin at random: give "
            "weights=FILE, or leave it out."
        )
    ends = [name for name in output_layers(model) if not auxiliary_head(name)]
    names = [name for name in adaptable(model, settings.lora_layers) if name not in ends]
    if not names:
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name not in ends]
        has = f"its linear layers are {', '.join(linear[:5])}" if linear else "it has no linear layers before its head"
        asked = (
            f"lora_layers={shorten(as_text(settings.lora_layers))}" if settings.lora_layers else "layers of attention"
        )
        way = "give some of them as lora_layers" if linear else "leave lora out, and freeze what is to stay"
        raise SettingError(f"lora={settings.lora} finds no {asked} in {type(model).__name__}; {has}: {way}.")
    adapt(model, names, settings.lora, settings.lora_alpha)
    if not isinstance(spec.target, TokenTarget):
        for end in ends:
            model.get_submodule(end).requires_grad_(True)
    learns = sum(p.numel() for p in model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in model.parameters())
    return [f"LoRA: {learns:,} numbers learn, and {whole - learns:,} stay as they are ({len(names)} layers adapted)."]
