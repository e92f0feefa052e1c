"""Independent implementations that the models are held to.

Each module beside this one has `ORACLES`: preset name → a function of the config that builds the `Oracle`, and, for
presets too large to compare whole, `REDUCED`: preset name → a smaller config of the same kind. A new family is one
new file here; nothing is registered by hand. The independent libraries are test dependencies: they are imported when
an oracle is built, and `OracleMissing` says why where one is not there.
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
    """A comparison that cannot be made here: the independent library is not installed, or there is none."""


@dataclass(frozen=True)
class Oracle:
    """Another implementation of the same network."""

    module: nn.Module
    inputs: Callable[[torch.Generator], tuple[Tensor, ...]]  # float64 inputs that both can take
    key_map: Mapping[str, str] | None = None  # our state-dict key → the oracle's; None where they are the same
    # Where one tensor there is several here: our named parameters, or their gradients, as the oracle's.
    converted: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None
    # What of the outputs for these inputs is compared, where that is not all: nobody reads answers at padding.
    compared: Callable[[tuple[Tensor, ...], Tensor], Tensor] | None = None


def oracle_for(name: str, config: Any) -> Oracle:
    """The oracle of a preset, built for `config`. Raises OracleMissing, saying why, where there is none here."""
    build = _collected("ORACLES").get(name)
    if build is None:
        raise OracleMissing(f"{name} has no independent implementation to be compared with.")
    oracle: Oracle = build(config)
    return oracle


def compared_config(name: str, config: Any) -> Any:
    """The config in which a preset is compared: a smaller one of the same kind where `config` is too large."""
    return _collected("REDUCED").get(name, config)


def torchvision_models(name: str) -> Any:
    """The module torchvision.models.NAME. Raises OracleMissing, saying why, where it cannot be imported here."""
    make_torchvision_importable()
    try:
        from torchvision import models

        return importlib.import_module(f"{models.__name__}.{name}")
    except (ImportError, RuntimeError) as error:
        raise OracleMissing(f"torchvision cannot be imported here ({str(error).splitlines()[0]}).") from error


def changed(config: Any, preset: Any, **names: str) -> dict[str, Any]:
    """What of a config is other than in a preset, by the other library's names of those fields: `dropout="dropout"`.
    All else is left to that library's own defaults, so that a preset that was changed is noticed."""
    fields = {theirs: (getattr(config, ours), getattr(preset, ours)) for theirs, ours in names.items()}
    return {theirs: given for theirs, (given, usual) in fields.items() if given != usual}


def images(*shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Inputs for an oracle: one float64 tensor of that shape from the standard normal distribution."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, generator=generator, dtype=torch.float64),)

    return draw


@functools.cache
def _collected(table: str) -> dict[str, Any]:
    """The dictionaries of that name from every module of this package, as one."""
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(__path__):
        found |= getattr(importlib.import_module(f"{__name__}.{info.name}"), table, {})
    return found
