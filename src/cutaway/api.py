"""The Python interface: train, search, load, look. The command line says the same."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import nn

from .checkpoints.convert import open_model, reject_absent
from .checkpoints.custom import handed_over
from .checkpoints.diffusers import is_diffusers
from .checkpoints.hub import here
from .checkpoints.huggingface.loading import is_folder
from .checkpoints.saving import CONFIG
from .core.config import build, keys
from .core.errors import DataError, FileError, SettingError, UnknownName, short
from .core.files import as_path, open_regular, reject_overwriting, write_text
from .data.datasets.registry import NAMED
from .data.in_memory.source import as_source
from .data.open_data import kind_of
from .data.settings import DataSettings
from .data.streaming.manifest import Manifest
from .data.streaming.prepare import prepare_data
from .data.streaming.settings import ShardSettings
from .deploy.runtime import Exported, is_exported
from .distributed.environment import rank
from .draw.description import Page, View
from .draw.html_page import framed, page
from .experiments.compare.baseline_check import hold_against_simple
from .experiments.search.optuna_import import need_optuna
from .nn.eval_mode import resting
from .reports.run_report import report_on
from .runs.run import Run
from .training.train import fit
from .views.inspect_page import describe as describe_page
from .views.open_target import open_subject
from .views.subject import Subject
from .views.summary import describe as describe

if TYPE_CHECKING:
    from .experiments.compare.result import Comparison
    from .experiments.plan.check import Checked
    from .experiments.plan.result import Plan
    from .experiments.search.result import Search

MARK = " · Cutaway</title>"  # by which a page that was written here is known
A_FOLDER = "out is the path of a folder"
HEAD = 4096  # bytes within which it stands


def train(
    model: str | nn.Module | None = None,
    data: Any = None,
    *,
    val: Any = None,
    test: Any = None,
    out: str | Path | None = None,
    resume: str | Path | Run | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Train `model` on `data`, write the run's folder and its report, and give the run.

        cutaway.train("lenet5", "digits", epochs=5)
        cutaway.train("mlp", (X, y), test=(X_test, y_test))  # arrays of NumPy or PyTorch
        cutaway.train("mlp", frame, target="price")          # pandas, polars, Arrow, or a list of dictionaries
        cutaway.train(Net(), "digits", epochs=5)  # a torch.nn.Module of your own, whose weights change in place

    `model` is the name of a preset, or a module whose forward takes tensors and gives logits or values.
    `data` is what DATA is on the command line; or (X, y), where X are rows (n, F), series (n, T, F), images
    (n, C, H, W), (n, H, W, C) or a list of Pillow's, or texts; a table of pandas, polars, Arrow or Hugging Face, or a
    list of dictionaries, with `target=` as for a file; texts; a torch Dataset; a graph of PyTorch Geometric (`Data`) or
    a list of them; or a dictionary of such splits. `val` and `test` are splits of your own in the same form, or
    fractions; what is not given is split off as from a file.

    `out` is the run's folder, which is new unless `overwrite` lets it be a run, whose files are replaced; `resume` goes
    on with a run where it stands. `settings` are those of `cutaway train --help`; a model's own go as
    `**{"model.hidden_dims": (64, 64)}`.
    Of processes that torchrun started each calls this, and the first alone writes.
    Raises CutawayError for what a person can fix, KeyboardInterrupt (the checkpoint is written) when stopped.
    """
    source, fractions = as_source(data, val, test)
    if isinstance(resume, Run):
        model = handed_over(resume.module) if model is None and resume.module is not None else model
        resume = resume.folder
    run = fit(model, source, {**settings, **fractions}, out=_folder(out), resume=resume, overwrite=overwrite)
    if rank() == 0:
        hold_against_simple(run)
        report_on(run)
    return run


def search(
    model: str | Callable[..., nn.Module] | tuple[str, Callable[..., nn.Module]] | None = None,
    data: Any = None,
    *,
    val: Any = None,
    test: Any = None,
    space: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    **settings: Any,
) -> Search:
    """Search among settings of `model` on `data`, choose by the validation split, and give what was found.

        found = cutaway.search("mlp", "digits", space={"lr": "1e-4..1e-1:log"}, trials=40)
        found.best["accuracy"]  # of the best trial, on the validation split
        found.run.evaluate()    # the winner, a run like any other
        cutaway.search(Net, "digits", space={"model.width": "8..64", "lr": "1e-4..1e-1:log"})  # Net(width=…), your own

    `model` is the name of a preset, or what makes modules of your own, anew for each trial: a class or a function, or a
    name and one, ("mine", make). Its parameters are settings, as `model.KEY`. `space` holds ranges, low..high or
    low..high:log, and choices, a list or A,B; a setting that is written so may stand beside it too. `data`, `val` and
    `test` are as for `train`; `settings` are those of `cutaway search --help` and of `train`, which are fixed. `out` is
    the folder, which may hold the same search already, and `resume` one to go on with: what was killed, or what other
    processes are at. Raises CutawayError for what a person can fix, KeyboardInterrupt when stopped; finished trials are
    kept.
    """
    need_optuna()
    from .experiments.search.study import search as run_search

    source, fractions = as_source(data, val, test)
    return run_search(model, source, {**settings, **fractions}, space=space, out=_folder(out), resume=resume)


def compare(
    models: str | Sequence[str | Callable[..., nn.Module] | tuple[str, Callable[..., nn.Module]]] = (),
    data: Any = (),
    *,
    val: Any = None,
    test: Any = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Train models on the same data with several seeds, and tell which is best and whether that is chance.

        found = cutaway.compare(["mlp", "linear"], "houses.csv", target="price", seeds=5)
        found.best["name"], found.best["value"]
        found.difference("mlp", "gradient boosting")["told_apart"]

        cutaway.compare(["mlp", Net, ("wide", lambda: Net(256))], (X, y))  # modules of your own

    `models` and `data` are names, or several separated by commas or in a list. A model may be what makes modules of
    your own, anew for each seed: a class or a function, or a name and one. `data`, `val` and `test` may be as for
    `train`. `settings` are those of `cutaway compare --help` and of `train`, the same for all models. `out` is the
    folder, which may hold the same comparison already, and `resume` one to go on with: finished trainings are kept.
    Raises CutawayError for what a person can fix, KeyboardInterrupt when stopped.
    """
    from .experiments.compare.runner import compare as run_comparison

    if isinstance(data, list | tuple) and all(isinstance(one, str | os.PathLike) for one in data):
        sources, fractions = [os.fspath(one) for one in data], as_source(None, val, test)[1]
    else:
        source, fractions = as_source(data, val, test)
        sources = _several(source) if isinstance(source, str) else [] if source is None else [source]
    return run_comparison(_several(models), sources, {**settings, **fractions}, out=_folder(out), resume=resume)


def _several(names: str | Sequence[Any]) -> list[Any]:
    """Names with commas between them, or what stands in a list."""
    return [name for name in names.split(",") if name] if isinstance(names, str) else [*names]


def prepare(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
    **settings: Any,
) -> Manifest:
    """Make shards of data that is larger than memory in the folder `out`, and give what it holds.

        cutaway.prepare("corpus/", "shards/", tokenizer="bpe", vocab_size=50_000, workers=8)
        cutaway.train("gpt2", "shards/")

    `settings` are those of `cutaway prepare --help`, and those of the data that are settled here. Stopped or killed,
    the same call goes on: shards that are finished are kept. `progress` is told how many are done, of how many.
    Raises CutawayError for what a person can fix.
    """
    out = as_path(out, "Shards are written to a folder, by its path")
    source = Path(as_path(data, "Data that is prepared is a path")).expanduser()
    of_data = [key for key in keys(DataSettings) if key in settings and key not in keys(ShardSettings)]
    kind = kind_of(str(data), build(DataSettings, {key: settings[key] for key in of_data}))
    if str(data) in NAMED:
        raise DataError(f"{data} is a named data set, which fits into memory: train on it as it is.")
    return prepare_data(kind, source, out, settings, progress)


def check(model: str | nn.Module, data: Any, *, val: Any = None, test: Any = None, **settings: Any) -> Checked:
    """What `train` would do with the same arguments: read the data, name what is wrong with it, trace a batch through
    the model, estimate time and memory. Nothing is trained that is kept, and nothing written.

        cutaway.check("mlp", (X, y)).findings  # what is wrong with the data, in sentences

    Raises DataError, with every bad row or file in its `problems`, and what else a person can fix.
    """
    from .experiments.plan.check import check as run_check

    source, fractions = as_source(data, val, test)
    return run_check(model, source, {**settings, **fractions})


def _folder(out: str | Path | None) -> Path | None:
    """Return the folder that results are written to, if one is given. Raises FileError for what is no path."""
    return None if out is None else as_path(out, A_FOLDER)


def prune(run: Run | str | os.PathLike[str], out: str | os.PathLike[str], **settings: Any) -> Run:
    """Take weights or channels out of a run's model while it learns on, and give the run of what is left, in `out`.

        small = cutaway.prune("runs/resnet20-cifar10-1", "small/", prune_channels=0.5, epochs=10)
        small.evaluate()["accuracy"]

    `settings` are those of `cutaway train --help`, `sparsity`, `prune_pattern` and `prune_channels` among them; data,
    split and all that is not given are the run's. Raises CutawayError for what a person can fix.
    """
    from .deploy.prune import prune as prune_run

    found = prune_run(run if isinstance(run, Run) else Run(run), as_path(out, A_FOLDER), settings)
    report_on(found)
    return found


def quantize(run: Run | str | os.PathLike[str], out: str | os.PathLike[str], **settings: Any) -> Run:
    """Make the weights of a run's model integers of 8 or 4 bits, and give the run of what comes of it, in `out`.

        small = cutaway.quantize("runs/resnet20-cifar10-1", "int8/")
        small.evaluate()["accuracy"]

    `settings` are those of `cutaway quantize --help`: `method`, `bits`, `group`, `calibration`, `qat`. Raises
    CutawayError for what a person can fix.
    """
    from .deploy.quantize import quantize as quantize_run

    target = as_path(out, "A quantized run is written to a folder, by its path")
    found = quantize_run(run if isinstance(run, Run) else Run(run), target, settings)
    report_on(found)
    return found


def export(run: Run | str | os.PathLike[str], path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a run as one file for other programs, .onnx or .pt2 as `path` ends, its preprocessing with it.

        cutaway.export("runs/lenet5-digits-1", "digits.onnx")
        cutaway.load("digits.onnx").predict(["seven.png"])

    Nothing is written unless what was made answers as the run does, at two sizes other than the traced one.
    Raises CutawayError for what a person can fix.
    """
    from .deploy.export import export as export_run

    target = as_path(path, "A run is exported to a file, by its path")
    export_run(run if isinstance(run, Run) else Run(run), target, overwrite)
    return target


def plan(model: str | nn.Module, data: Any, *, val: Any = None, test: Any = None, **settings: Any) -> Plan:
    """What training `model` on `data` would take of memory, time and money, by each strategy, before anything runs.

        found = cutaway.plan("gpt2", "book.txt", gpu="h100", gpus=8, price=2.5)
        found["fsdp"].memory.total  # bytes on each GPU, at the moment when most is held
        found.best.cost             # of the fastest strategy that fits

    `data`, `val` and `test` are as for `train`; `settings` are those of `cutaway plan --help` and of `train`. Without
    `gpu` the plan is for this machine, and a few steps are timed. The model may be larger than this machine. Raises
    CutawayError for what a person can fix.
    """
    from .experiments.plan.planner import plan as make_plan

    source, fractions = as_source(data, val, test)
    return make_plan(model, source, {**settings, **fractions})


@overload
def load(path: str | os.PathLike[str], model: None = None) -> Any: ...
@overload
def load(path: str | os.PathLike[str], model: str) -> nn.Module: ...
@overload
def load(path: str | os.PathLike[str], model: nn.Module | type[nn.Module]) -> Run: ...
def load(path: str | os.PathLike[str], model: str | nn.Module | type[nn.Module] | None = None) -> Run | nn.Module:
    """Open a run, to evaluate, predict, look inside; or, with `model=NAME`, the bare model, in eval mode on the CPU.

        load("runs/lenet5-digits-1").predict(["seven.png"])
        load("digits.onnx").predict(["seven.png"])           # what `export` wrote
        load("resnet18.pth", model="resnet18")(images)       # torchvision's checkpoint
        load("runs/lenet5-digits-1", model="lenet5")         # what the run trained
        load("runs/Net-digits-1", model=Net())               # a run of a module of your own, which a copy of it becomes
        load("minilm/")(tokens, mask)                        # a Hugging Face folder, which says itself what it is
        load("ddpm/")(x_t, t)                                # diffusers' folder of a UNet2DModel
        load("hub:ORG/NAME@REVISION")                        # the same, fetched from the Hugging Face Hub

    A checkpoint's shapes tell channels, classes and image size; which preset it is for must be said. What should be
    known of one, such as counters that it lacks, is warned of. Raises FileError where `path` is not what was asked
    for, UnknownName or ModelError for a preset that does not exist, or that the other format does not have.
    """
    as_path(path, "load opens a path: a run's folder, a model's, Hugging Face's, or a file of weights")
    path = here(path)
    reject_absent(path)
    if isinstance(model, nn.Module | type):
        run = Run(path, model)
        run.reject_other_module()
        return run
    if model is not None or is_folder(path) or is_diffusers(path):
        found, _, notes = open_model(path, model)
        for sentence in notes:
            warnings.warn(f"{path}: {sentence}", stacklevel=2)
        return found
    if is_exported(path):
        return Exported(path)
    if path.is_file():
        raise FileError(
            f"{path} is a file, not a run's folder. If it is torchvision's checkpoint, say for which model, as in "
            f'load("{path}", model="resnet18").'
        )
    if (path / CONFIG).is_file():
        raise FileError(f'{path} is a model without its run: name the model too, as in load("{path}", model=NAME).')
    run = Run(path)
    run.reject_other_module()
    return run


class Look:
    """A page of views. In a notebook it shows itself; `save` writes it, `views` are its descriptions."""

    def __init__(self, subject: Subject, names: Sequence[str] = ()) -> None:
        self.subject = subject
        self.page: Page = describe_page(subject, names)

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
        path = as_path(path, "A page is written to a file, by its path")
        reject_overwriting(path, overwrite=overwrite or is_page(path))
        write_text(path, page(self.page))
        return path

    def to_json(self) -> str:
        """The description of the page as one JSON document."""
        return json.dumps(self.page, ensure_ascii=False, allow_nan=False)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which can do nothing but draw: it has no network and no access to the
        notebook."""
        return framed(self.page["title"], page(self.page))


def look(
    what: Run | nn.Module | str | os.PathLike[str],
    *inputs: Any,
    view: str | Sequence[str] = (),
    model: str | None = None,
    **options: Any,
) -> Look:
    """Look inside a model, trained or not.

        cutaway.look("runs/lenet5-digits-1", "seven.png")             # a run, and files as for predict
        cutaway.look(run, X[:8])                                      # arrays and other objects, as train takes them
        cutaway.look("resnet18", view="network")                      # a preset, untrained, with random examples
        cutaway.look("gpt2", view="attention", head=3)                # a view's own options
        cutaway.look("resnet18", **{"model.num_classes": 10})         # a preset with settings of its own
        cutaway.look(model, images)                                   # a model at hand, with what its forward takes

    `what` may also be a Hugging Face folder, `hub:ORG/NAME`, a model's folder, or torchvision's file with `model=NAME`.
    `view` is one name or several; without it, all that suit. Raises UnknownName for a view or an option that does not
    exist, ModelError for a view that has nothing to show, and what reading raises.
    """
    names = (view,) if isinstance(view, str) else view
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(f"view={short(view)} cannot be read: it is the name of a view, or a list of names.")
    with resting(what) if isinstance(what, nn.Module) else nullcontext():  # which is in training, perhaps
        return Look(open_subject(what, inputs, options, model), tuple(names))


def is_page(path: Path) -> bool:
    """Whether a page stands there that was written here, and can be again."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return MARK.encode() in file.read(HEAD)
