"""Common parts of the oracles from transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.huggingface import Family, to_transformers_names
from ..models.registry import preset
from . import Oracle, ragged_tokens
from .libraries import transformers_library
from .published import TRANSFORMERS, resolved

DATA_FIELDS = ("num_labels",)  # defined by the data
SAME_FUNCTIONS = ({"gelu_new", "gelu_pytorch_tanh"},)  # names of the same function


class OutputField(nn.Module):
    """Network of transformers with plain tensors: token ids and their mask to the output named `field`."""

    def __init__(self, model: nn.Module, field: str = "logits", **always: Any) -> None:
        super().__init__()
        self.model, self.field, self.always = model, field, always

    def forward(self, tokens: Tensor, mask: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """Return the raw outputs."""
        more: dict[str, Any] = dict(self.always)
        if target is not None:
            more["decoder_input_ids"] = target
        found: Tensor = getattr(self.model(input_ids=tokens, attention_mask=mask, **more), self.field)
        return found


def transformers_oracle(
    family: Family,
    name: str,
    config: Any,
    *,
    inputs: Callable[[torch.Generator], tuple[Tensor, ...]] | None = None,
    **more: Any,
) -> Oracle:
    """Build the network of the preset `name` in transformers with eager attention and our weights.

    Its config is the library's default with the published values of `name`, not ours. Only fields of `config` that
    differ from our preset, such as sizes for the comparison, are applied, and then `more`.
    """
    library = transformers_library()
    kind = getattr(library, family.architecture(config))
    asked, own = family.settings(config), family.settings(preset(name).config)
    changed = {key: value for key, value in asked.items() if key not in own or own[key] != value}
    reference = reference_config(family, name)
    for key, value in {**changed, **more}.items():
        setattr(reference, key, value)
    module = kind(reference)
    module.set_attn_implementation("eager")
    if not getattr(config, "tie_weights", True):
        _tie_again(module, family)

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {f"model.{key}": tensor for key, tensor in to_transformers_names(family, tensors).items()}

    drawn = inputs or ragged_tokens(config.vocab_size)
    return Oracle(OutputField(module), drawn, converted=converted, compared=zero_padding)


def _tie_again(module: Any, family: Family) -> None:
    """Tie weights again that the library separates if the output matrix is not the embedding.

    The library then lets each stack have a separate table, and gives the output a second bias that is not used.
    """
    module.set_input_embeddings(module.get_input_embeddings())
    if family.output_bias is not None:
        added, saved = family.output_bias
        layer, _, kind = added.rpartition(".")
        setattr(module.get_submodule(layer), kind, module.get_parameter(saved))


def reference_config(family: Family, name: str) -> Any:
    """Return the transformers config of the published weights of a preset.

    It has the library's defaults with the values of their config.json. Raises OracleMissing if transformers is not
    installed.
    """
    library = transformers_library()
    kind = getattr(library, family.architecture(preset(name).config)).config_class
    return kind(**TRANSFORMERS[name])


def reference_differences(family: Family, name: str, config: Any) -> list[str]:
    """Return the settings of a preset that differ from the reference, in both directions.

    The config that is written for transformers is compared, and the config that is read from the reference's
    config.json.
    """
    reference = reference_config(family, name)
    written = {k: v for k, v in family.settings(config).items() if k not in DATA_FIELDS}
    theirs = {key: getattr(reference, key, None) for key in written}
    sizes = {"n_inner": 4 * getattr(reference, "n_embd", 0)}  # unset there too
    heads = {"classifier_dropout": getattr(reference, "hidden_dropout_prob", None)}
    found = [
        f"{key}={value!r}, transformers {theirs[key]!r}"
        for key, value in written.items()
        if not _same(key, value, theirs[key], {**sizes, **heads})
    ]
    read, ours = resolved(family.config(reference.to_dict())), resolved(config)
    found += [
        f"{field}={ours[field]!r}, read of transformers' config {value!r}"
        for field, value in read.items()
        if field not in ("head", "num_classes") and ours[field] != value
    ]
    return found


def _same(key: str, ours: Any, theirs: Any, opened: Mapping[str, Any]) -> bool:
    """Return whether a setting equals the reference. Unset values are resolved first."""
    ours, theirs = (opened.get(key) if value is None else value for value in (ours, theirs))
    return bool(ours == theirs) or any({ours, theirs} <= names for names in SAME_FUNCTIONS if isinstance(ours, str))


def zero_padding(inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
    """Return outputs (N, T, V) of text with 0 at padding, and other outputs unchanged."""
    return outputs * inputs[1][..., None] if outputs.ndim == 3 and len(inputs) == 2 else outputs
