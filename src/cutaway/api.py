"""The Python interface, which offers the same functions as the command line: train, search, load, look."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from torch import nn

from .checkpoints.convert import open_model, reject_absent
from .checkpoints.custom import copy_custom_module
from .checkpoints.diffusers import is_diffusers
from .checkpoints.hub import resolve_path
from .checkpoints.huggingface.folders import is_folder
from .checkpoints.saving import CONFIG
from .core.config import build, field_names
from .core.errors import CutawayWarning, NotARunError, SettingError, UnknownName, UnsupportedDataError, shorten
from .core.files import as_path, open_regular, reject_overwriting, write_text
from .data.in_memory.source import to_source
from .data.open_data import NAMED, infer_kind
from .data.settings import DataSettings, ShardSettings
from .data.streaming.shards import Manifest, prepare_data
from .deploy.runtime import ExportedRun, is_exported
from .distributed.launch import rank
from .draw.description import Page, View
from .draw.html_page import render_iframe, render_page
from .experiments.compare.baselines import score_baselines
from .experiments.settings import require_optuna
from .nn.modules import eval_mode
from .reports.run_report import write_layers_and_report
from .runs.run import Run
from .runs.train import train_model
from .training.callbacks import Callback, Progress
from .views.inspect_page import build_page as describe_page
from .views.network import describe as describe
from .views.subject import Subject, open_subject

if TYPE_CHECKING:
    from .core.typed_names import (
        AnyName,
        CompareOptions,
        PlanOptions,
        PrepareOptions,
        PresetName,
        QuantizeOptions,
        SearchOptions,
        TrainOptions,
        ViewName,
    )
    from .experiments.compare.result import Comparison
    from .experiments.planner import CheckResult, Plan
    from .experiments.search.result import Search

PAGE_MARK = " · Cutaway</title>"  # identifies a page that Cutaway wrote
A_FOLDER = "out must be the path of a folder"
PAGE_MARK_SEARCH_BYTES = 4096  # bytes at the start of the file that are searched for it


def train(
    model: PresetName | AnyName | nn.Module | None = None,
    data: Any = None,
    *,
    val: Any = None,
    test: Any = None,
    out: str | Path | None = None,
    resume: str | Path | Run | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    verbose: bool = True,
    **settings: Unpack[TrainOptions],
) -> Run:
    """Train a model, write the run's folder and its report, and return the run.

        cutaway.train("lenet5", "digits", epochs=5)
        cutaway.train(data="wine.csv", target="cultivar")    # with a model that is proposed for the data
        cutaway.train("mlp", (X, y), test=(X_test, y_test))  # arrays of NumPy or PyTorch
        cutaway.train("mlp", frame, target="price")          # pandas, polars, Arrow, or a list of dictionaries
        cutaway.train(Net(), "digits", epochs=5)             # your own torch.nn.Module, which is updated in place

    If torchrun started several processes, each of them calls this function, and only the first one writes files.

    Args:
        model: Name of a preset, or a module whose forward takes tensors and returns logits or values. Without one, a
            preset is proposed for the data and named in the log.
        data: DATA as on the command line, or one of: (X, y), where X are rows (n, F), series (n, T, F), images
            (n, C, H, W), (n, H, W, C) or a list of Pillow images, or texts; a table of pandas, polars, Arrow or
            Hugging Face, or a list of dictionaries, with `target=` as for a file; texts; a torch Dataset; a graph of
            PyTorch Geometric (`Data`) or a list of them; or a dictionary of such splits.
        val: Validation split in the same form as `data`, or a fraction. By default it is split off as from a file.
        test: Test split in the same form as `data`, or a fraction. By default it is split off as from a file.
        out: Folder of the run. It must be new, unless `overwrite` is set. By default, a new folder in runs/.
        resume: Run to resume from its last checkpoint.
        overwrite: Replace the files of a run that exists in `out`.
        callbacks: Objects of subclasses of `cutaway.Callback`, whose methods are called during training. To resume a
            run whose callbacks have a state, pass the same callbacks again.
        verbose: Show progress and notes. Otherwise nothing is printed.
        **settings: Settings as listed by `cutaway train --help all`. Model settings are passed as
            `**{"model.hidden_dims": (64, 64)}`.

    Returns:
        The run.

    Raises:
        CutawayError: For errors that the user can fix.
        KeyboardInterrupt: If training is stopped. The checkpoint is written first.
    """
    progress = Progress(shown=_check_verbose(verbose) and rank() == 0)
    source, fractions = to_source(data, val, test)
    if isinstance(resume, Run):
        model = copy_custom_module(resume.module) if model is None and resume.module is not None else model
        resume = resume.folder
    run = train_model(
        model,
        source,
        {**settings, **fractions},
        out=_folder(out),
        resume=resume,
        progress=progress,
        overwrite=overwrite,
        callbacks=callbacks,
    )
    if rank() == 0:
        score_baselines(run)
        write_layers_and_report(run)
    return run


def search(
    model: PresetName | AnyName | Callable[..., nn.Module] | tuple[str, Callable[..., nn.Module]] | None = None,
    data: Any = None,
    *,
    val: Any = None,
    test: Any = None,
    space: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **settings: Unpack[SearchOptions],
) -> Search:
    """Search for good settings of a model, choose the best by the validation split, and return the result.

        found = cutaway.search("mlp", "digits", space={"lr": "1e-4..1e-1:log"}, trials=40)
        found.best["accuracy"]  # of the best trial, on the validation split
        found.run.evaluate()    # the run of the best settings
        cutaway.search(Net, "digits", space={"model.width": "8..64", "lr": "1e-4..1e-1:log"})  # your own Net(width=…)

    Args:
        model: Name of a preset, or a class or function that builds a new module for each trial, or a pair of a name and
            such a function, ("mine", build). Its parameters are settings, as `model.KEY`.
        data: As for `train`.
        val: As for `train`.
        test: As for `train`.
        space: Ranges, low..high or low..high:log, and choices, a list or A,B. A setting in this form may also be passed
            in `settings`.
        out: Folder of the search. It may already hold the same search. By default, a new folder in runs/.
        resume: Search to resume: one that was killed, or one that other processes are working on.
        verbose: Show progress and notes. Otherwise nothing is printed.
        **settings: Settings as listed by `cutaway search --help`, and fixed settings of `train`.

    Returns:
        The search. `best` is the row of the best trial, `trials` has the rows of all trials, and `run` is the run that
        was trained with the best settings and tested.

    Raises:
        CutawayError: For errors that the user can fix.
        KeyboardInterrupt: If the search is stopped. Finished trials are kept.
    """
    require_optuna()
    from .experiments.search.result import SearchProgress
    from .experiments.search.study import search as run_search

    progress = SearchProgress(shown=_check_verbose(verbose))
    source, fractions = to_source(data, val, test)
    given = {**settings, **fractions}
    return run_search(model, source, given, space=space, out=_folder(out), resume=resume, progress=progress)


def compare(
    models: str | Sequence[PresetName | AnyName | Callable[..., nn.Module] | tuple[str, Callable[..., nn.Module]]] = (),
    data: Any = (),
    *,
    val: Any = None,
    test: Any = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **settings: Unpack[CompareOptions],
) -> Comparison:
    """Train models on the same data with several seeds, and test which one is significantly better.

        found = cutaway.compare(["mlp", "linear"], "houses.csv", target="price", seeds=5)
        found.best["name"], found.best["value"]
        found.difference("mlp", "gradient boosting")["told_apart"]

        cutaway.compare(["mlp", Net, ("wide", lambda: Net(256))], (X, y))  # your own modules

    Args:
        models: Names, in a list or separated by commas. A model may also be a class or function that builds a new
            module for each seed, or a pair of a name and such a function.
        data: Names, in a list or separated by commas, or data as for `train`.
        val: As for `train`.
        test: As for `train`.
        out: Folder of the comparison. It may already hold the same comparison. By default, a new folder in runs/.
        resume: Comparison to resume. Finished trainings are kept.
        verbose: Show progress and notes. Otherwise nothing is printed.
        **settings: Settings as listed by `cutaway compare --help` and settings of `train`, the same for all models.

    Returns:
        The comparison. `best` is the row of the best model, `difference(a, b)` tests a pair of models, and `results`
        has all models, baselines and pairs of each data set.

    Raises:
        CutawayError: For errors that the user can fix.
        KeyboardInterrupt: If the comparison is stopped.
    """
    from .experiments.compare.result import CompareProgress
    from .experiments.compare.runner import compare as run_comparison

    progress = CompareProgress(shown=_check_verbose(verbose))
    if isinstance(data, list | tuple) and all(isinstance(one, str | os.PathLike) for one in data):
        sources, fractions = [os.fspath(one) for one in data], to_source(None, val, test)[1]
    else:
        source, fractions = to_source(data, val, test)
        sources = _split_names(source) if isinstance(source, str) else [] if source is None else [source]
    given = {**settings, **fractions}
    return run_comparison(_split_names(models), sources, given, out=_folder(out), resume=resume, progress=progress)


def _split_names(names: str | Sequence[Any]) -> list[Any]:
    """Return comma-separated names, or the items of a sequence, as a list."""
    return [name for name in names.split(",") if name] if isinstance(names, str) else [*names]


def prepare(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
    **settings: Unpack[PrepareOptions],
) -> Manifest:
    """Write shards of a data set that is larger than memory, and return their manifest.

        cutaway.prepare("corpus/", "shards/", tokenizer="bpe", vocab_size=50_000, workers=8)
        cutaway.train("gpt2", "shards/")

    If the call is stopped or killed, the same call continues it: finished shards are kept.

    Args:
        data: Path of the data.
        out: Folder for the shards.
        progress: Function that is called with the number of finished shards and the number of all shards. By default,
            nothing is called.
        **settings: Settings as listed by `cutaway prepare --help`, and data settings that the shards fix.

    Returns:
        The manifest. `splits` lists the shards of each split, and `count(split)` is its number of tokens or examples.

    Raises:
        CutawayError: For errors that the user can fix.
    """
    out = as_path(out, "out must be the path of a folder")
    source = Path(as_path(data, "data must be a path")).expanduser()
    given = {**settings}
    of_data = [key for key in field_names(DataSettings) if key in given and key not in field_names(ShardSettings)]
    kind = infer_kind(str(data), build(DataSettings, {key: given[key] for key in of_data}))
    if str(data) in NAMED:
        raise UnsupportedDataError(f"{data} is a named data set that fits into memory: train on it directly.")
    return prepare_data(kind, source, out, settings, progress)


def check(
    model: PresetName | AnyName | nn.Module | None = None,
    data: Any = None,
    *,
    val: Any = None,
    test: Any = None,
    **settings: Unpack[TrainOptions],
) -> CheckResult:
    """Check a model and its data without training: find problems in the data, and estimate time and memory.

        cutaway.check("mlp", (X, y)).findings  # problems of the data, one sentence each

    The data is read as by `train`, and one batch is traced through the model. Nothing is written.

    Args:
        model: As for `train`.
        data: As for `train`.
        val: As for `train`.
        test: As for `train`.
        **settings: As for `train`.

    Returns:
        The result: `findings`, problems of the data; `splits`, the number of examples of each split; `memory`, bytes by
        kind; and `cost`, the estimated time of a step.

    Raises:
        DataError: If the data cannot be used. `problems` lists every bad row or file.
        CutawayError: For other errors that the user can fix.
    """
    from .experiments.planner import check as run_check

    source, fractions = to_source(data, val, test)
    return run_check(model, source, {**settings, **fractions})


def _check_verbose(verbose: bool) -> bool:
    """Return `verbose`. Raises SettingError if it is neither True nor False."""
    if not isinstance(verbose, bool):
        raise SettingError(f"Invalid verbose={shorten(verbose)}: must be True or False.")
    return verbose


def _folder(out: str | Path | None) -> Path | None:
    """Return the output folder as a path, or None. Raises FileError if it is not a path."""
    return None if out is None else as_path(out, A_FOLDER)


def prune(run: Run | str | os.PathLike[str], out: str | os.PathLike[str], **settings: Unpack[TrainOptions]) -> Run:
    """Prune weights or channels of a trained model while it is fine-tuned, and return the new run.

        small = cutaway.prune("runs/resnet20-cifar10-1", "small/", prune_channels=0.5, epochs=10)
        small.evaluate()["accuracy"]

    Args:
        run: Run whose model is pruned.
        out: Folder of the new run.
        **settings: Settings as listed by `cutaway train --help all`, such as `sparsity`, `prune_pattern` and
            `prune_channels`. Other settings, the data and its split are those of the run.

    Returns:
        The run of the pruned model.

    Raises:
        CutawayError: For errors that the user can fix.
    """
    from .deploy.compression import prune as prune_run

    found = prune_run(run if isinstance(run, Run) else Run(run), as_path(out, A_FOLDER), settings)
    write_layers_and_report(found)
    return found


def quantize(
    run: Run | str | os.PathLike[str], out: str | os.PathLike[str], **settings: Unpack[QuantizeOptions]
) -> Run:
    """Quantize the weights of a trained model to integers of 8 or 4 bits, and return the new run.

        small = cutaway.quantize("runs/resnet20-cifar10-1", "int8/")
        small.evaluate()["accuracy"]

    Args:
        run: Run whose model is quantized.
        out: Folder of the new run.
        **settings: Settings as listed by `cutaway quantize --help`: `method`, `bits`, `group`, `calibration`, `qat`.

    Returns:
        The run of the quantized model.

    Raises:
        CutawayError: For errors that the user can fix.
    """
    from .deploy.quantize import quantize as quantize_run

    target = as_path(out, "out must be the path of a folder")
    found = quantize_run(run if isinstance(run, Run) else Run(run), target, settings)
    write_layers_and_report(found)
    return found


def export(run: Run | str | os.PathLike[str], path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Export a run, with its preprocessing, to one file for other programs.

        cutaway.export("runs/lenet5-digits-1", "digits.onnx")
        cutaway.load("digits.onnx").predict(["seven.png"])

    The file is written only if the exported model gives the same answers as the run, at two sizes other than the traced
    one.

    Args:
        run: Run to export.
        path: Path of the file. The suffix selects the format: .onnx, which `load` opens, or .pt2, which
            `torch.export.load` opens.
        overwrite: Replace a file that exists at `path`.

    Returns:
        The path of the file.

    Raises:
        CutawayError: For errors that the user can fix.
    """
    from .deploy.export import export as export_run

    target = as_path(path, "path must be the path of a file")
    export_run(run if isinstance(run, Run) else Run(run), target, overwrite)
    return target


def plan(
    model: PresetName | AnyName | nn.Module,
    data: Any,
    *,
    val: Any = None,
    test: Any = None,
    **settings: Unpack[PlanOptions],
) -> Plan:
    """Estimate the memory, time and cost of training a model with each parallel strategy, before anything runs.

        found = cutaway.plan("gpt2", "book.txt", gpu="h100", gpus=8, price=2.5)
        found["fsdp"].memory.total  # bytes on each GPU, at the peak
        found.best.cost             # of the fastest strategy that fits

    Without `gpu` the plan is for this machine, and a few steps are timed. The model may be larger than this machine.

    Args:
        model: As for `train`.
        data: As for `train`.
        val: As for `train`.
        test: As for `train`.
        **settings: Settings as listed by `cutaway plan --help`, and settings of `train`.

    Returns:
        The plan. `plan[name]` is the memory in bytes, the time in seconds and the cost of one strategy; `best` is the
        fastest strategy that fits into memory, or None.

    Raises:
        CutawayError: For errors that the user can fix.
    """
    from .experiments.planner import plan as make_plan

    source, fractions = to_source(data, val, test)
    return make_plan(model, source, {**settings, **fractions})


@overload
def load(path: str | os.PathLike[str], model: None = None) -> Any: ...
@overload
def load(path: str | os.PathLike[str], model: PresetName | AnyName) -> nn.Module: ...
@overload
def load(path: str | os.PathLike[str], model: nn.Module | type[nn.Module]) -> Run: ...
def load(path: str | os.PathLike[str], model: str | nn.Module | type[nn.Module] | None = None) -> Run | nn.Module:
    """Load a run to evaluate it, to predict with it or to inspect it, or load a model alone.

        load("runs/lenet5-digits-1").predict(["seven.png"])
        load("digits.onnx").predict(["seven.png"])           # a file that `export` wrote
        load("resnet18.pth", model="resnet18")(images)       # a torchvision checkpoint
        load("runs/lenet5-digits-1", model="lenet5")         # the model of a run
        load("runs/Net-digits-1", model=Net())               # a run of your own module, which is copied
        load("minilm/")(tokens, mask)                        # a Hugging Face folder, which names its own model
        load("ddpm/")(x_t, t)                                # a diffusers folder of a UNet2DModel
        load("hub:ORG/NAME@REVISION")                        # the same, fetched from the Hugging Face Hub

    The shapes in a checkpoint determine channels, classes and image size, but the preset must be named. Problems of a
    checkpoint, such as missing counters, are reported as warnings.

    Args:
        path: Folder of a run or a model, Hugging Face or diffusers folder, exported file, or file of weights.
        model: Name of the preset, to load the model alone; or your own module or its class, to open a run of it. By
            default, the run, or the model of a Hugging Face or diffusers folder.

    Returns:
        A `Run`, also for an exported file; or, if only the model is loaded, the module in eval mode on the CPU.

    Raises:
        FileError: If `path` cannot be loaded as requested.
        UnknownName: If there is no such preset.
        ModelError: If the preset does not exist in the other format.
    """
    as_path(path, "path must be the path of a run, a model folder, a Hugging Face folder, or a weights file")
    path = resolve_path(path)
    reject_absent(path)
    if isinstance(model, nn.Module | type):
        run = Run(path, model)
        run.reject_other_module()
        return run
    if model is not None or is_folder(path) or is_diffusers(path):
        found, _, notes = open_model(path, model)
        for sentence in notes:
            warnings.warn(f"{path}: {sentence}", CutawayWarning, stacklevel=2)
        return found
    if is_exported(path):
        return ExportedRun(path)
    if path.is_file():
        raise NotARunError(
            f"{path} is a file, not the folder of a run. For a torchvision checkpoint, name its model, e.g. "
            f'load("{path}", model="resnet18").'
        )
    if (path / CONFIG).is_file():
        raise NotARunError(f'{path} is a model without a run: name the model, e.g. load("{path}", model=NAME).')
    run = Run(path)
    run.reject_other_module()
    return run


class Look:
    """A page of views. A notebook displays it, `save` writes it, and `views` holds its descriptions."""

    def __init__(self, subject: Subject, names: Sequence[str] = ()) -> None:
        self.subject = subject
        self.page: Page = describe_page(subject, names)

    @property
    def views(self) -> list[View]:
        """Return the views of the page in order, without the head."""
        return self.page["views"][1:]

    @property
    def notes(self) -> list[str]:
        """Return the notes about the model and its inputs, one sentence each."""
        return [said for drawing in self.page["views"][0]["drawings"] for said in drawing["sentences"]]

    def __getitem__(self, name: str) -> View:
        """Return the view of that name. Raises UnknownName if the page has no such view."""
        found = {view["id"]: view for view in self.views}
        if name not in found:
            raise UnknownName("view on this page named", name, found)
        return found[name]

    def __repr__(self) -> str:
        return f"Look({self.page['title']!r}, {', '.join(view['id'] for view in self.views)})"

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the page as one HTML file that works offline.

        Args:
            path: Path of the file. A page that Cutaway wrote there earlier is replaced.
            overwrite: Replace any other file, too.

        Returns:
            The path of the file.

        Raises:
            FileError: If another file exists at `path` and `overwrite` is not set, or if the file cannot be written.
        """
        path = as_path(path, "path must be the path of a file")
        reject_overwriting(path, overwrite=overwrite or is_page(path))
        write_text(path, render_page(self.page))
        return path

    def to_json(self) -> str:
        """Return the description of the page as one JSON document."""
        return json.dumps(self.page, ensure_ascii=False, allow_nan=False)

    def _repr_html_(self) -> str:
        """Return the page in a sandboxed frame, which has no network and no access to the notebook."""
        return render_iframe(self.page["title"], render_page(self.page))


def look(
    what: Run | nn.Module | str | os.PathLike[str],
    *inputs: Any,
    view: ViewName | AnyName | Sequence[ViewName | AnyName] = (),
    model: PresetName | AnyName | None = None,
    **options: Any,
) -> Look:
    """Open a page of views of a model, trained or untrained.

        cutaway.look("runs/lenet5-digits-1", "seven.png")             # a run, and files as for predict
        cutaway.look(run, X[:8])                                      # arrays and other objects, as train takes them
        cutaway.look("resnet18", view="network")                      # a preset, untrained, with random examples
        cutaway.look("gpt2", view="attention", head=3)                # options of the view
        cutaway.look("resnet18", **{"model.num_classes": 10})         # a preset with its own settings
        cutaway.look(model, images)                                   # a module, and the inputs of its forward

    Args:
        what: Run, module, name of a preset, folder of a run or a model, Hugging Face folder, `hub:ORG/NAME`, or a
            torchvision file together with `model=NAME`.
        *inputs: Files, arrays or tensors that the views are computed from.
        view: Name of a view, or a list of names, as listed by `cutaway inspect --help`. By default, all that apply.
        model: Name of the preset of a torchvision file. By default, none.
        **options: Options of the views, and model settings as `model.KEY`.

    Returns:
        The page. A notebook displays it, `save(path)` writes it as an HTML file, and `page[view]` is the description of
        a view.

    Raises:
        UnknownName: If a view or an option does not exist.
        ModelError: If a view has nothing to show.
        CutawayError: If a file or an input cannot be read.
    """
    names = (view,) if isinstance(view, str) else view
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(f"Invalid view={shorten(view)}: must be the name of a view or a list of names.")
    with eval_mode(what) if isinstance(what, nn.Module) else nullcontext():  # it may be in training mode
        return Look(open_subject(what, inputs, options, model), tuple(names))


def is_page(path: Path) -> bool:
    """Return whether the file is a page that Cutaway wrote, which may be replaced."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return PAGE_MARK.encode() in file.read(PAGE_MARK_SEARCH_BYTES)
