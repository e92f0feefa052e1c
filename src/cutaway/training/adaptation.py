"""Low-rank adaptation (LoRA) of a model with pretrained weights."""

from __future__ import annotations

from torch import nn

from ..core.config import as_text, shorten
from ..core.errors import SettingError
from ..core.spec import Spec, TokenTarget
from ..nn.lora import adapt, adaptable
from .config import TrainSettings
from .parameter_groups import auxiliary_head, output_layers


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
