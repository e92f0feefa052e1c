"""Another view at several moments of training, from the saved weights of a run."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ConfigError, SettingError
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent
from ..training.checkpoint import load_weights
from .json_values import evenly_spaced
from .registry import VIEWS, draw_view, suitable_views
from .run.documents import Moment, saved_moments
from .subject import Subject

NOT_OF = (
    "network",
    "curves",
    "results",
    "arithmetic",
    "time",
)  # views that do not depend on the weights of a moment, and this view
FIRST = {  # default views of each family: the first suitable one is shown
    "dense": ("boundary", "features"),
    "cnn": ("filters", "features"),
    "rnn": ("gates", "embeddings"),
    "graph": ("graph", "embeddings"),
    "transformer": ("attention", "embeddings"),
}
MOMENTS, LARGE, OF_LARGE = 12, 10_000_000, 6  # default number of moments, with fewer for large models
MOST = 2_000_000  # most characters of the whole description
MANY = 24


def draw_time(subject: Subject) -> View:
    """Return the drawings of another view for each moment."""
    of, most = _selected(subject)
    assert subject.run is not None, "only runs have saved weights"
    every = saved_moments(subject.run)
    moments = evenly_spaced(every, most)
    model = copy.deepcopy(subject.model)
    own = {k: v for k, v in subject.options.items() if k not in VIEWS["time"].options}
    then = dataclasses.replace(subject, model=model, whole=subject.data, options=own)
    found: list[tuple[Moment, View]] = []
    while moments:
        moment, *moments = moments
        _load_moment(model, moment)
        found.append((moment, _truncate(draw_view(of, then), most)))
        if len(found) == 1:
            size = len(json.dumps(found[0][1]["drawings"]))
            moments = evenly_spaced([moment, *moments], max(2, min(most, MOST // max(1, size))))[1:]
    rows = [_row(then, model, moment, found[0][0]) for moment, _ in found]
    shown = found[-1][1]
    return View(
        id="time",
        title=f"{shown['title']} over time",
        says=f"{shown['says'].rstrip('.')}, at {len(found)} moments of training, from the first to the last.",
        summary=_summary(found, rows, len(every)),
        table=table({"moment": "text", "loss of these examples": "number", "change since the first": "fraction"}, rows),
        drawings=[_choice(found)],
    )


def _views(subject: Subject) -> list[str]:
    """Return the views that can be shown at each moment, the default first."""
    first = FIRST.get(subject.family, ())
    suitable = [name for name in suitable_views(subject) if name not in NOT_OF]
    return [*(name for name in first if name in suitable), *(name for name in suitable if name not in first)]


def _selected(subject: Subject) -> tuple[str, int]:
    """Return the selected view and number of moments. Raises ModelError and SettingError for invalid options."""
    known = _views(subject)
    of = subject.options.get("of", known[0])
    if of not in known:
        raise ConfigError(f"Invalid of={of}: must be one of {', '.join(known)}.")
    large = sum(p.numel() for p in subject.model.parameters()) > LARGE
    typed = subject.options.get("moments", str(OF_LARGE if large else MOMENTS))
    if not typed.isdigit() or not 2 <= int(typed) <= MANY:
        raise SettingError(f"Invalid moments={typed}: must be an integer from 2 to {MANY}.")
    return of, int(typed)


def _load_moment(model: nn.Module, moment: Moment) -> None:
    """Load the weights of a moment into the model. Raises FileError if they cannot be read."""
    model.load_state_dict(load_weights(moment.path))


def _truncate(found: View, moments: int) -> View:
    """Return the view with as many drawings as fit for this number of moments, at least one."""
    drawings: list[Drawing] = []
    size = 0
    for drawing in found["drawings"]:
        size += len(json.dumps(drawing))
        if drawings and size > MOST // moments:
            break
        drawings.append(drawing)
    return {**found, "drawings": drawings}


def _row(subject: Subject, model: nn.Module, moment: Moment, first: Moment) -> list[Any]:
    """Return the moment, the loss of the examples, and the relative change of the weights, ‖W − W₀‖ / ‖W₀‖."""
    _load_moment(model, moment)
    with torch.no_grad():
        loss = float(subject.loss())
    return [
        moment.name,
        loss if math.isfinite(loss) else None,
        _relative_change(load_weights(first.path), model.state_dict()),
    ]


def _relative_change(before: dict[str, Tensor], now: dict[str, Tensor]) -> float:
    floating = [name for name, x in now.items() if x.is_floating_point()]
    far = math.sqrt(sum(float((now[k].double() - before[k].double()).square().sum()) for k in floating))
    return far / (math.sqrt(sum(float(before[k].double().square().sum()) for k in floating)) or 1.0)


def _choice(found: list[tuple[Moment, View]]) -> Drawing:
    return charts.choice(
        f"{found[0][1]['title']} over time",
        "moment",
        [{"name": moment.name, "drawings": shown["drawings"]} for moment, shown in found],
        slider=True,
        start=len(found) - 1,
    )


def _summary(found: list[tuple[Moment, View]], rows: list[list[Any]], every: int) -> str:
    """Return a summary of the first and the last moments."""
    (first, before), (last, after) = found[0], found[-1]
    some = f" {len(found)} of {every} moments are shown." if len(found) < every else ""
    loss = [row[1] for row in (rows[0], rows[-1])]
    went = f" The loss of these examples goes from {number(loss[0])} to {number(loss[1])}" if None not in loss else ""
    moved = f"{went}, and the weights change by {percent(rows[-1][2])} of their norm." if went else ""
    return f"At {first.name}: {before['summary']} At {last.name}: {after['summary']}{moved}{some}"
