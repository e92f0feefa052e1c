"""The models of a comparison on one data set: which can take it, in the same terms, and with which budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...checkpoints.factory import begun
from ...core.config import as_text
from ...core.errors import CutawayError, DataError, UnknownName
from ...data.dataset_base import DataSet
from ...data.settings import DataSettings
from ...inspect.example_inputs import inputs_for
from ...inspect.layers import layer_table
from ...models.registry import Preset
from ...tasks.task import Task
from ...training.setup import prepare
from ..search.trial import Opened
from .contributions import Compared, compared_by

COPIES = 4  # of the weights, while AdamW learns: themselves, their gradients and two moments
LENGTHS = ("minutes", "max_steps", "epochs")
EPOCHS, STEPS, BATCH = 20, 500, 64  # at least, unless something else is asked for: few examples need more epochs


@dataclass
class Contestant:
    """A model that can take the data."""

    preset: Preset
    data: DataSet
    task: Task
    compared: Compared
    parameters: int
    macs: int | None  # of an example; None where they are not known
    bytes: int  # to learn
    given: dict[str, Any]  # of its trainings, but for the seed
    own: dict[str, str]  # settings of the data that are its card's, and not those of all

    @property
    def model(self) -> str:
        """What it is called."""
        return self.preset.name


@dataclass(frozen=True)
class Excluded:
    """One that cannot."""

    model: str
    why: str


def contestants(
    models: Sequence[Preset], source: Any, given: Mapping[str, Any], macs: float | None
) -> tuple[list[Contestant], list[Excluded]]:
    """Those that can take the data, and those that cannot with why. Raises the first error where none can, and what is
    wrong with a name, a setting or the data itself, whichever the model is."""
    opened, found, excluded, first = Opened(), [], [], None
    for model in models:
        try:
            found.append(_contestant(model, source, given, macs, opened))
        except (UnknownName, DataError):
            raise
        except CutawayError as error:
            excluded.append(Excluded(model.name, str(error)))
            first = first or error
    for other in found[1:]:
        if why := _unlike(found[0], other):
            excluded.append(Excluded(other.model, why))
    out = {one.model for one in excluded}
    found = [one for one in found if one.model not in out]
    if not found and first is not None:
        raise first
    return found, excluded


def _contestant(model: Preset, source: Any, given: Mapping[str, Any], macs: float | None, opened: Opened) -> Contestant:
    started, settings = begun(model, given)
    ready = prepare(started, source, settings, opened=opened)
    table = layer_table(ready.model.eval(), *inputs_for(ready.model, ready.data.spec))
    cost = table.multiply_adds if table.complete else None
    own = dict(given)
    if macs is not None:
        if not cost:
            raise CutawayError(
                f"how many multiply-adds {model.name} takes is not known, and macs={macs:g} is the budget"
            )
        own["max_steps"] = max(1, round(macs / (cost * (ready.settings.batch_size or len(ready.data.splits["train"])))))
    usual = DataSettings()
    different = {
        f.name: as_text(getattr(ready.data_settings, f.name))
        for f in dataclasses.fields(DataSettings)
        if f.name not in given and getattr(ready.data_settings, f.name) != getattr(usual, f.name)
    }
    return Contestant(
        model,
        ready.data,
        ready.task,
        compared_by(ready.task),
        table.parameters,
        cost,
        COPIES * sum(p.nbytes for p in ready.model.parameters()),
        own,
        different,
    )


def _unlike(first: Contestant, other: Contestant) -> str:
    """Why what two models say cannot be compared; empty where it can."""
    if first.compared.key != other.compared.key:
        return f"it is told by {other.compared.key}, and {first.model} by {first.compared.key}"
    if first.data.split_hash != other.data.split_hash:
        return f"it splits the data in another way than {first.model}"
    words = [getattr(one.data.spec, "vocab_size", None) for one in (first, other)]
    if first.compared.key == "perplexity" and words[0] != words[1]:
        return (
            f"it cuts the text into other tokens ({words[1]:,} kinds) than {first.model} ({words[0]:,}), and "
            "perplexity is of a token: tokenizer=characters or bpe cuts it alike for all"
        )
    return ""


def with_budget(given: Mapping[str, Any], macs: float | None, examples: int) -> tuple[dict[str, Any], str]:
    """The settings with a budget that is the same for all models of so many training `examples`, and it in words."""
    asked = {key: given[key] for key in LENGTHS if key in given}
    if macs is not None:
        return {**given}, f"{macs:.3g} multiply-adds of forward passes for each training"
    if not asked:
        epochs = max(EPOCHS, min(STEPS, math.ceil(STEPS * BATCH / max(1, examples))))  # an epoch has a step at least
        return {**given, "epochs": epochs}, f"{epochs} epochs for each training"
    words = {"minutes": "minutes", "max_steps": "optimizer steps", "epochs": "epochs"}
    return {**given}, f"{' and '.join(f'{value} {words[key]}' for key, value in asked.items())} for each training"
