"""Reference implementations with which the models are compared.

Each module of this package has `ORACLES`: preset name → a function of the config that builds the `Oracle`. For presets
that are too large to compare completely it has `REDUCED`: preset name → a smaller config of the same kind. A new family
is one new file here, without registration. The independent libraries are test dependencies. They are imported when an
oracle is built, and `OracleMissing` says why one is not available.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import CutawayError
from .operators import make_torchvision_importable


class OracleMissing(CutawayError):
    """The comparison is not possible, because the independent library is not installed or does not exist."""


@dataclass(frozen=True)
class Oracle:
    """Independent implementation of the same network."""

    module: nn.Module
    inputs: Callable[[torch.Generator], tuple[Tensor, ...]]  # float64 inputs for both networks
    key_map: Mapping[str, str] | None = None  # our state-dict key → the oracle's; None if they are the same
    # Converts our named parameters, or their gradients, to the oracle's, if one tensor there is several here.
    converted: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None
    # Selects the outputs that are compared, if not all are: outputs at padding are not used.
    compared: Callable[[tuple[Tensor, ...], Tensor], Tensor] | None = None


def oracle_for(name: str, config: Any) -> Oracle:
    """Build the oracle of a preset for `config`. Raises OracleMissing, with the reason, if it is not available."""
    build = _merge_tables("ORACLES").get(name)
    if build is None:
        raise OracleMissing(f"{name} has no independent implementation to be compared with.")
    oracle: Oracle = build(config)
    return oracle


def compared_config(name: str, config: Any) -> Any:
    """Return the config for the comparison of a preset: a smaller one of the same kind if `config` is too large."""
    return _merge_tables("REDUCED").get(name, config)


def torchvision_models(name: str) -> Any:
    """Import the module torchvision.models.NAME. Raises OracleMissing, with the reason, if it cannot be imported."""
    make_torchvision_importable()
    try:
        from torchvision import models

        return importlib.import_module(f"{models.__name__}.{name}")
    except (ImportError, RuntimeError) as error:
        raise OracleMissing(f"torchvision cannot be imported here ({str(error).splitlines()[0]}).") from error


def changed(config: Any, preset: Any, **names: str) -> dict[str, Any]:
    """Return the fields of a config that differ from a preset, under the other library's names: `dropout="dropout"`.

    All other fields keep that library's defaults, so that a wrong preset is detected.
    """
    fields = {theirs: (getattr(config, ours), getattr(preset, ours)) for theirs, ours in names.items()}
    return {theirs: given for theirs, (given, usual) in fields.items() if given != usual}


def images(*shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws one float64 tensor of that shape from the standard normal distribution."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, generator=generator, dtype=torch.float64),)

    return draw


@functools.cache
def _merge_tables(table: str) -> dict[str, Any]:
    """Return the merged dictionaries of that name from every module of this package."""
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(__path__):
        found |= getattr(importlib.import_module(f"{__name__}.{info.name}"), table, {})
    return found
