"""Specification of a search, from the command line or from its folder, and the document that identifies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...checkpoints.factory import ModuleBuilder, builder_from_document, to_builder
from ...core.config import as_text, build, exact_text
from ...core.errors import SettingError, shorten
from ...core.files import exists
from ...core.schema import name_document_in_errors
from ...data.dataset_base import IN_MEMORY
from ...data.in_memory.source import InMemorySource
from ...models.registry import Preset, preset
from ...runs.train import absolute_source
from . import darts
from .config import SearchSettings, reject_idle
from .space import Space, parse_space, sort_settings
from .storage import ABOUT, read_about

OWN = "own"  # key of search.json for the maker of custom modules


@dataclass
class Plan:
    """Specification of a search."""

    found: Preset
    source: str | InMemorySource
    space: Space
    fixed: dict[str, Any]
    settings: SearchSettings
    how: dict[str, Any]  # search settings that were given

    @property
    def seed(self) -> int:
        """Return the seed of the draws, which is that of the trainings if it is fixed."""
        return int(self.fixed.get("seed", 0))

    def document(self) -> dict[str, Any]:
        """Return everything that searches with the same folder must have in common, without the number of trials."""
        return {
            "model": self.found.name,
            "data": IN_MEMORY if isinstance(self.source, InMemorySource) else self.source,
            "space": self.space.texts(),
            "fixed": {key: exact_text(value) for key, value in self.fixed.items()},
            "search": {key: value for key, value in asdict(self.settings).items() if key != "trials"},
            **(
                {OWN: {"path": self.found.path, "kinds": self.found.kinds}}
                if isinstance(self.found, ModuleBuilder)
                else {}
            ),
        }


def new_plan(model: Any, source: Any, given: Mapping[str, Any], space: Mapping[str, Any] | None) -> Plan:
    """Return the specification of a new search. Raises SettingError or UnknownName for invalid input."""
    if model is None or source is None:
        raise SettingError(
            "Missing model, data or range: cutaway search MODEL DATA lr=1e-4..1e-1:log. `cutaway list` shows "
            "the models."
        )
    found = preset(model) if isinstance(model, str) else to_builder(model)
    how, searched, fixed = sort_settings(found, given)
    for key in space or {}:
        if key in how or key in SearchSettings.__dataclass_fields__:
            raise SettingError(f"Invalid {key}: a setting of the search itself cannot be searched.")
        if key in searched:
            raise SettingError(f"{key} is given twice: in space and as a setting.")
    settings = build(SearchSettings, how)
    reject_idle(settings, how)
    searched |= space or {}
    whole = parse_space(found, searched, fixed)
    if settings.sampler == "darts":
        darts.reject_space(whole)
    if settings.sampler == "grid":
        whole.grid()  # rejects unlimited ranges
    return Plan(
        found,
        source if isinstance(source, InMemorySource) else located(str(source)),
        whole,
        dict(fixed),
        settings,
        dict(how),
    )


def resumed_plan(
    folder: Path,
    model: Any,
    source: Any,
    given: Mapping[str, Any],
    space: Mapping[str, Any] | None,
    out: str | Path | None,
) -> Plan:
    """Return the specification of a search that is continued, with more trials if they are given."""
    about = read_about(folder)
    if out is not None and Path(out).resolve() != folder.resolve():
        raise SettingError(f"--resume continues in {folder}: leave --out out.")
    with name_document_in_errors(folder / ABOUT):
        build(SearchSettings, about["search"])
        parse_space(model_from_document(about), about["space"], about["fixed"])
    in_memory = about["data"] == IN_MEMORY
    if in_memory and not isinstance(source, InMemorySource):
        raise SettingError(
            "The data of this search was passed in Python: pass it again, search(data=DATA, resume=FOLDER)."
        )
    if isinstance(source, InMemorySource) and not in_memory:
        raise SettingError(
            f"The data of this search is {about['data']}, which is opened automatically: leave data out."
        )
    handed = model is not None and not isinstance(model, str)
    found = to_builder(model) if handed else model_from_document(about)
    if OWN in about and not handed:
        raise SettingError(
            f"The model of this search is built by {about[OWN]['path']}: pass it again, e.g. "
            f"search({found.name}, resume={str(folder)!r})."
        )
    model = found.name if handed else model
    located_now = None if source is None or in_memory else located(str(source))
    for what, now, then in (("model", model, about["model"]), ("data", located_now, about["data"])):
        if now is not None and now != then:
            raise SettingError(
                f"The {what} of this search is {then}, not {now}. Leave MODEL and DATA out with --resume."
            )
    for key, value in {**given, **(space or {})}.items():
        if key != "trials":
            raise SettingError(
                f"Invalid {key}={shorten(value if isinstance(value, str) else as_text(value))}: cannot change when a "
                "search is resumed (only trials can). Start another search."
            )
    how = {**about["typed"], **given}
    settings = build(SearchSettings, {**about["search"], "trials": given.get("trials", about["trials"])})
    whole = parse_space(found, about["space"], about["fixed"])
    return Plan(found, source if in_memory else about["data"], whole, dict(about["fixed"]), settings, how)


def model_from_document(about: Mapping[str, Any]) -> Preset:
    """Return the model of a search from its document. For custom modules only their settings are known."""
    own = about.get(OWN)
    return preset(about["model"]) if own is None else builder_from_document(about["model"], own["path"], own["kinds"])


def located(source: str) -> str:
    """Return a source with its absolute path, if it is a path."""
    there = all(exists(Path(one).expanduser()) for one in source.split(","))
    return (absolute_source(source) or source) if there else source  # missing paths are reported as they were typed
