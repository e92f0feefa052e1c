"""The page of an opened subject: a head, then the suitable or selected views."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.custom import CustomPreset
from ..core.errors import ModelError, UnknownName
from ..core.extras import MissingPackageError
from ..core.version import __version__
from ..data.dataset_base import inverse_transform
from ..draw.description import Drawing, Page, View, table
from ..draw.number_format import count, number, shape_text
from .image_kernels import PHOTO_VIEWS, PhotoPreset
from .network import subject_layers
from .registry import VIEWS, draw_view, find_view, suitable_views, suits, view_options
from .subject import Subject, examples_text

WORK = 60e9  # most MACs of a view that was not selected by name
SHOWN = 40  # most examples in the head
MAX_CHARS = 120  # most characters of a prediction


def build_page(subject: Subject, names: Sequence[str] = ()) -> Page:
    """Return the page of these views, or of all suitable ones, with its head.

    `subject.options` are passed to the views that have them: `layer=conv1` to each view with a layer,
    `filters.layer=conv1` to one view.

    Raises:
        UnknownName: If a view or an option does not exist.
        ModelError: If a view has nothing to show.
        SettingError: If an option is invalid.
    """
    if not names and isinstance(subject.preset, PhotoPreset):
        names = PHOTO_VIEWS
    chosen, costly = list(dict.fromkeys(names)), list[str]()
    for name in chosen:
        if not suits(name, subject):
            raise ModelError(
                f"The view {name} ({find_view(name).says}) does not apply to "
                f"{subject.preset.name}{' with these examples' if subject.split else ''}. Applicable views: "
                f"{', '.join(suitable_views(subject))}."
            )
    if not names:
        suit = suitable_views(subject)
        costly = costly_views(subject, suit)
        chosen = [name for name in suit if name not in costly]
    asked = split_options(chosen, subject.options)
    views, missing = list[View](), list[str]()
    for name in chosen:
        try:
            views.append(describe_view(name, dataclasses.replace(subject, options=asked[name])))
        except MissingPackageError as error:
            if names:
                raise
            missing.append(f"Left out: {name}. {error}")
    return Page(
        title=_title(subject),
        views=[page_head(subject, costly, missing), *views],
        colophon=f"Cutaway {__version__} · This page is self-contained and loads nothing from the network.",
    )


def costly_views(subject: Subject, names: Sequence[str]) -> list[str]:
    """Return the views that would take too long for this model size and number of examples."""
    if not any(find_view(name).model_runs for name in names):
        return []
    work = subject_layers(subject).multiply_adds * (1 if subject.kind == "graph" else subject.count)
    return [name for name in names if work * find_view(name).model_runs > WORK]


def describe_view(name: str, subject: Subject) -> View:
    """Return one view with its reading instructions and limitations."""
    view, entry = draw_view(name, subject), find_view(name)
    return {**view, "read": entry.read, "misleads": entry.misleads}


def split_options(names: Sequence[str], given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the options of each view by its name.

    Raises:
        UnknownName: If none of the views has an option.
    """
    known = view_options(names)
    inner = given.get("of", given.get("time.of", ""))
    if "time" in names and inner in VIEWS:  # the view inside `time` has options too
        for option in view_options([inner]):
            known.setdefault(option, []).append("time")
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in given.items():
        view, dot, option = key.partition(".")
        of = [view] if dot and view in known.get(option, ()) else [] if dot else known.get(key, [])
        if not of:
            shown = "this page" if len(names) != 1 else f"the view {names[0]}"
            elsewhere = [name for name in view_options(VIEWS).get(key, []) if name not in names]
            hint = f"The option belongs to: {', '.join(elsewhere)}." if elsewhere else "See `cutaway inspect --help`."
            raise UnknownName(f"option of {shown} named", key, known, hint)
        for name in of:
            found[name][option if dot else key] = str(value)
    return found


def page_head(subject: Subject, costly: Sequence[str] = (), missing: Sequence[str] = ()) -> View:
    """Return the head of the page: the model, the examples, the views that are too slow, and sentences about those
    whose library is missing.
    """
    parameters = sum(p.numel() for p in subject.model.parameters())
    about = [f"{count(parameters)} parameters"]
    if subject.run is not None:
        about.append(f"trained on {subject.run.about['data']['name']}")
    return View(
        id="opened",
        title=_title(subject),
        says=(
            "Filtered by a known kernel, without a network."
            if isinstance(subject.preset, PhotoPreset)
            else f"{', '.join(about)}; shown with {examples_text(subject)}."
        ),
        summary=(
            f"{_card(subject)} Its input is {subject.kind} data, here of shape "
            f"{shape_text(subject.inputs[0].shape[1:])}."
        ),
        table=table({"example": "text", "prediction": "text"}, _rows(subject)),
        drawings=_notes(subject, costly, missing),
    )


def _title(subject: Subject) -> str:
    of = f", trained on {subject.run.about['data']['name']}" if subject.run is not None else ""
    return f"Inside {subject.called}{of}"


def _card(subject: Subject) -> str:
    card = subject.preset.card.card
    if isinstance(subject.preset, PhotoPreset):
        return f"{card.title} in place of a network, and a photo."
    if isinstance(subject.preset, CustomPreset):
        return f"{card.title.partition(',')[0]}, a custom module."
    return f"{card.title}, {card.authors}, {card.year}."


def _notes(subject: Subject, costly: Sequence[str], missing: Sequence[str]) -> list[Drawing]:
    sentences = [*subject.notes, *missing]
    if costly:
        names = " and ".join(costly)
        sentences.append(f"Left out, because slow for this model: {names}. Select a view by name to show it.")
    return [{"kind": "prose", "sentences": sentences}] if sentences else []


def _rows(subject: Subject) -> list[list[Any]]:
    """Return the name of each example and its prediction, if that is a word or a number."""
    names = [subject.name(i) for i in range(min(subject.count, SHOWN))]
    return [[name, said] for name, said in zip(names, predictions(subject), strict=False)]


def predictions(subject: Subject) -> list[str]:
    """Return the model's prediction of each example, in words; empty strings if it predicts every token."""
    if subject.task is None or hasattr(subject.task, "summarize_outputs"):
        return [""] * subject.count
    outputs = subject.outputs()
    outputs = outputs[list(subject.rows)] if _selects_nodes(subject, outputs) else outputs
    if subject.split is not None and subject.rows:
        outputs = inverse_transform(subject.split, outputs, torch.tensor(subject.rows))
    rows = subject.task.predictions(outputs)
    return [_shortened(", ".join(map(_to_text, row.values()))) for row in rows]


def _selects_nodes(subject: Subject, outputs: Tensor) -> bool:
    """Return whether the model has outputs for all nodes of a graph, and only some are selected."""
    return subject.kind == "graph" and len(outputs) == len(subject.inputs[0]) and len(subject.rows) > 0


def _to_text(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
