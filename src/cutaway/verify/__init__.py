"""Reference implementations with which the models are compared.

Each module for a family of architectures has `ORACLES`: preset name → a function of the config that builds the
`Oracle`. For presets that are too large to compare completely it has `REDUCED`: preset name → a smaller config of the
same kind. Tables of a new module are found without registration. The independent libraries are test dependencies. They
are imported when an oracle is built, and `OracleMissing` says why one is not available.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import CutawayError

TEXT_LENGTHS = (9, 4, 7, 1)  # tokens of each text: a ragged batch with right padding


class OracleMissing(CutawayError):
    """The comparison is not possible, because the independent library is not installed or does not exist."""

    code = "CUT-405"


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


def valid_mask(lengths: Sequence[int]) -> Tensor:
    """Return the mask (N, T) of sequences of these lengths with right padding: True where valid."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def ragged_tokens(vocab_size: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws token ids (N, T) of texts of different lengths, and their mask."""

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        mask = valid_mask(TEXT_LENGTHS)
        return torch.randint(2, vocab_size, mask.shape, generator=generator).where(mask, 0), mask

    return draw


def ragged_pairs(
    vocab_size: int, target: int | None = None, *, lengths: Sequence[int] = TEXT_LENGTHS, steps: int = 8
) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws source ids (N, T), their mask, and target ids (N, S).

    Target ids are below `target`, or below the vocabulary of the source.
    """

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        mask = valid_mask(lengths)
        source = torch.randint(2, vocab_size, mask.shape, generator=generator).where(mask, 0)
        return source, mask, torch.randint(2, target or vocab_size, (len(lengths), steps), generator=generator)

    return draw


def ragged_frames(lengths: Sequence[int], *shape: int) -> Callable[[torch.Generator], tuple[Tensor, ...]]:
    """Return a function that draws float64 sequences (N, T, *shape) of these lengths, and their mask.

    The padding is not zero, so that using it would be detected.
    """

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        size = (len(lengths), max(lengths), *shape)
        return torch.randn(size, generator=generator, dtype=torch.float64), valid_mask(lengths)

    return draw


@functools.cache
def _merge_tables(table: str) -> dict[str, Any]:
    """Return the merged dictionaries of that name from every module of this package."""
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(__path__):
        found |= getattr(importlib.import_module(f"{__name__}.{info.name}"), table, {})
    return found
