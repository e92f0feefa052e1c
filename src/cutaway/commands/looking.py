"""`cutaway.look`: what can be seen inside a model, in Python and in notebooks; `cutaway inspect` stands on it."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import DataError, FileError, SettingError, UnknownName
from ..files import refuse_address, refuse_overwriting, write_text
from ..interop.convert import open_model as read_model
from ..interop.hub import here
from ..interop.huggingface.folders import read_folder
from ..interop.huggingface.reading import is_folder
from ..models.registry import presets
from ..models.saving import CONFIG
from ..report.description import Page, View
from ..report.inside.foreign import preprocessing_beside
from ..report.inside.gradients import with_first
from ..report.inside.looking import resting
from ..report.inside.page import describe
from ..report.inside.subject import Subject, open_model, open_preset, open_run, with_examples
from ..report.page import page
from ..training.run import Run

MARK = " · Cutaway</title>"  # by which a page that was written here is known
HEAD = 4096  # bytes within which it stands
OF_MODEL = "model."
HEAD_ALONE = "head"  # what is untrained of a folder that has none
RANDOM = "The examples are random numbers."
LARGE = 20_000_000  # parameters of a preset from which on one random example is enough
HEIGHT = 760  # pixels of a page in a notebook; it scrolls within


class Look:
    """A page of views. In a notebook it shows itself; `save` writes it, `views` are its descriptions."""

    def __init__(self, subject: Subject, names: Sequence[str] = ()) -> None:
        self.subject = subject
        self.page: Page = describe(subject, names)

    @property
    def views(self) -> list[View]:
        """The views without the head, in order."""
        return self.page["views"][1:]

    @property
    def notes(self) -> list[str]:
        """What a person should know of it, in sentences."""
        return [said for drawing in self.page["views"][0]["drawings"] for said in drawing["sentences"]]

    def __getitem__(self, name: str) -> View:
        """The view of that name. Raises UnknownName where the page has none."""
        found = {view["id"]: view for view in self.views}
        if name not in found:
            raise UnknownName("view on this page named", name, found)
        return found[name]

    def __repr__(self) -> str:
        return f"Look({self.page['title']!r}, {', '.join(view['id'] for view in self.views)})"

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the page as one HTML file that opens offline, and give its path. A page that was written here before is
        written anew. Raises FileError where another file stands there, unless `overwrite`, or it cannot be written."""
        path = Path(path)
        refuse_overwriting(path, overwrite=overwrite or is_page(path))
        write_text(path, page(self.page))
        return path

    def to_json(self) -> str:
        """The description of the page as one JSON document."""
        return json.dumps(self.page, ensure_ascii=False, allow_nan=False)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which can do nothing but draw: it has no network and no access to the
        notebook."""
        return (
            f'<iframe title="{html.escape(self.page["title"])}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0; resize: vertical" '
            f'srcdoc="{html.escape(page(self.page))}"></iframe>'
        )


def look(
    what: Run | nn.Module | str | os.PathLike[str],
    *inputs: Any,
    view: str | Sequence[str] = (),
    model: str | None = None,
    **options: Any,
) -> Look:
    """Look inside a model, trained or not.

        cutaway.look("runs/lenet5-digits-1", "seven.png")             # a run, and files as for predict
        cutaway.look("resnet18", view="network")                      # a preset, untrained, with random examples
        cutaway.look("gpt2", view="attention", head=3)                # a view's own options
        cutaway.look("resnet18", **{"model.num_classes": 10})         # a preset with settings of its own
        cutaway.look(model, images)                                   # a model at hand, with what its forward takes

    `what` may also be a Hugging Face folder, `hub:ORG/NAME`, a model's folder, or torchvision's file with `model=NAME`.
    `view` is one name or several; without it, all that suit. Raises UnknownName for a view or an option that does not
    exist, ModelError for a view that has nothing to show, and what reading raises.
    """
    names = (view,) if isinstance(view, str) else tuple(view)
    with resting(what) if isinstance(what, nn.Module) else nullcontext():  # which is in training, perhaps
        return Look(open_subject(what, inputs, options, model), names)


def open_subject(
    what: Run | nn.Module | str | os.PathLike[str],
    inputs: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Subject:
    """What was named, opened with these examples. `options` with a name that begins with `model.` are settings of a
    preset, the others are for the views. Raises CutawayError for what a person can mend."""
    given = dict(options or {})
    settings = {k.removeprefix(OF_MODEL): v for k, v in given.items() if k.startswith(OF_MODEL)}
    asked = {k: str(v) for k, v in given.items() if not k.startswith(OF_MODEL)}
    if isinstance(what, nn.Module):
        _refuse_settings(settings, "a model at hand")
        return _opened(what, inputs, asked)
    if isinstance(what, Run):
        _refuse_settings(settings, "a run")
        return open_run(what, inputs, asked)
    if not isinstance(what, str | os.PathLike):
        raise FileError(
            f"What is looked into is a run, a model, or the path or name of one, and this is a {type(what).__name__}."
        )
    path = here(what)
    if path.exists():
        _refuse_settings(settings, "a model with weights")
        if (path / "run.json").is_file():
            return open_run(Run(path), inputs, asked)
        return _from_files(path, inputs, asked, name)
    known = {p.name: p for p in presets().values()} | {p.file_name: p for p in presets().values()}
    if str(what) not in known:
        refuse_address(what)
        raise UnknownName(
            "run, folder or model", str(what), presets(), "`cutaway list` shows the models; runs stand in runs/."
        )
    subject = open_preset(str(what), settings, asked)
    if inputs:
        return _with_files(subject, inputs, None)
    large = sum(p.numel() for p in subject.model.parameters()) > LARGE
    return with_first(subject, 1) if large else subject


def _opened(model: nn.Module, inputs: Sequence[Any], asked: Mapping[str, str]) -> Subject:
    """A model at hand. Raises DataError for inputs that its forward does not take."""
    if strange := next((x for x in inputs if not isinstance(x, Tensor)), None):
        raise DataError(
            f"A model at hand is looked at with what its forward takes, tensors, and {strange!r} is none.",
            mend="Give a run's folder instead, to show it files.",
        )
    subject = open_model(model, *inputs, options=asked)
    return subject if inputs else dataclasses.replace(subject, notes=(RANDOM,))  # who knows what it has learned


def _from_files(path: Path, inputs: Sequence[Any], asked: Mapping[str, str], name: str | None) -> Subject:
    """A model's folder, a Hugging Face folder, or torchvision's file, with files where there is a way for them."""
    if path.is_dir() and not is_folder(path) and not (path / CONFIG).is_file():
        raise FileError(
            f"{path} is neither a run, nor a model's folder, nor Hugging Face's: it has no run.json and no {CONFIG}. "
            "`cutaway train` makes runs, by default in runs/."
        )
    if path.is_file() and name is None:
        raise FileError(f"{path} is a file, not a run's folder. If it is torchvision's checkpoint, add --model NAME.")
    untrained = ""
    if path.is_dir() and is_folder(path):
        found = read_folder(path, name)
        model, called, notes = found.model, found.preset.name, found.notes
        untrained = HEAD_ALONE if found.new else ""
    else:
        model, called, notes = read_model(path, name)
    subject = open_model(model, options=asked)
    subject = dataclasses.replace(subject, preset=presets()[called], notes=(*notes, RANDOM), untrained=untrained)
    return _with_files(subject, inputs, path if path.is_dir() else None, notes) if inputs else subject


def _with_files(subject: Subject, inputs: Sequence[Any], folder: Path | None, notes: Sequence[str] = ()) -> Subject:
    """The subject with a person's own files."""
    way, told = preprocessing_beside(subject.preset, subject.config, folder)
    part = way.examples([str(x) if isinstance(x, os.PathLike) else x for x in inputs])
    subject = dataclasses.replace(subject, preprocessing=way, notes=(*notes, *((told,) if told else ())))
    return with_examples(subject, part, range(len(part)))


def _refuse_settings(settings: Mapping[str, Any], of: str) -> None:
    """Raise SettingError where settings of a model are given that is made already."""
    if settings:
        key = next(iter(settings))
        raise SettingError(
            f"model.{key} is a setting of an untrained preset, and this is {of}, which is what it is: leave it out."
        )


def is_page(path: Path) -> bool:
    """Whether a page stands there that was written here, and can be again."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(HEAD)
