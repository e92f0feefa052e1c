"""Which processes a training has: how many are asked for, what they can learn, and which run they are at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data.sets import DataSet
from ..distributed import environment
from ..errors import LostProcess, SettingError
from ..files import read_json
from ..settings import build
from .settings import TrainSettings

# Others compare the examples of a whole batch, or remember what they have seen.
SHARED = ("supervised", "mae")
SETTINGS = ("processes", "max_restarts")


def asked_for(given: Mapping[str, Any], known: Mapping[str, Any]) -> TrainSettings:
    """What is said of processes by what is `given`, or else by the settings `known` of a run that is resumed.

    Raises SettingError where torchrun has started another number of them.
    """
    own = {**known, **given}
    settings = build(TrainSettings, {key: own[key] for key in SETTINGS if key in own})
    there = environment.world_size()
    if environment.launched() and "processes" in given and settings.processes not in (1, there):
        raise SettingError(
            f"processes={settings.processes}, and torchrun has started {there}: leave processes out, which torchrun "
            "decides."
        )
    return settings


def reject_for_processes(settings: TrainSettings, data: DataSet, there: int) -> None:
    """Raise SettingError where training is not for several processes, or is not shared by as many as are asked for."""
    if settings.processes != there:
        raise SettingError(
            f"processes={settings.processes} are started by `cutaway train` alone, and here is one: leave it out."
        )
    if there > 1 and (settings.objective not in SHARED or data.tasks is not None):
        what = f"objective={settings.objective}" if settings.objective not in SHARED else "a sequence of tasks"
        raise SettingError(
            f"processes={there} each see a part of a batch, and {what} is learned from whole ones: leave processes out."
        )


def run_of(launch: str | None, out: str | Path | None) -> Path | None:
    """The run that the processes of a launch began, in `out` or in runs/, if they have begun one."""
    for document in [Path(out) / "run.json"] if out is not None else sorted(Path("runs").glob("*/run.json")):
        if launch is not None and document.is_file() and read_json(document).get("launch") == launch:
            return document.parent
    return None


def and_how_to_go_on(lost: LostProcess, run: Path | None) -> LostProcess:
    """The same error, with what is left of the run."""
    if run is not None and (run / "checkpoints" / "last.safetensors").exists():
        way = f"Its checkpoint is kept, and any number of processes can go on: cutaway train --resume {run}"
    else:
        way = "There is no checkpoint yet: train anew."
    lost.args = (f"{lost} {way}",)
    return lost
