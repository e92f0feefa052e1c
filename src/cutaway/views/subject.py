"""The subject of `inspect`: a model, opened with examples and their data.

A target is a run, a preset, a folder, a file or a module. Files of the user are preprocessed for models without a run
too: images are supported for vision models, texts if there is a tokenizer in the folder of the weights.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL.Image import Image
from torch import Tensor, nn

from ..checkpoints.convert import open_model as read_model
from ..checkpoints.custom import CustomPreset
from ..checkpoints.hub import resolve_path
from ..checkpoints.huggingface.folders import is_folder, read_folder
from ..checkpoints.match_config import closest_preset, diff, settings_phrase
from ..checkpoints.saving import CONFIG
from ..core.config import split_model_settings
from ..core.errors import (
    DataError,
    FileError,
    IncompatibleSettingError,
    ModelError,
    NotARunError,
    SettingError,
    UnknownName,
    UnsupportedDataError,
)
from ..core.files import is_path, missing_file_error
from ..core.spec import OF_TOKENS, Classes, ImageSpec, Masked, NextToken, Spec, Target, TextSpec, Transcript, Value
from ..data.dataset_base import DataSet, Preprocessing, Split
from ..data.folders import IMAGES
from ..data.images.image_files import list_image_files
from ..data.images.text_to_image import CaptionedTokenPreprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.in_memory.dataset import is_batch, prepare_inputs
from ..data.modalities import read_preprocessing
from ..data.text.puzzles import PuzzlePreprocessing
from ..data.text.tokenizer_files import open_tokenizer
from ..data.text.tokenizers import PRETRAINED
from ..data.text.transforms import TextPreprocessing
from ..data.unsupported_formats import reject_unsupported_file
from ..draw.number_format import count, plural
from ..inspect.attribution.explained_output import input_kind
from ..inspect.example_inputs import example_inputs, example_shape, input_modality
from ..models.base import SupportsDecoding, as_output_tuple
from ..models.registry import Preset, preset, presets
from ..runs.run import Run
from ..tasks.task import Task
from .image_kernels import FixedKernels, PhotoPreset, parse_kernel, photo_preprocessing

FEW = 8  # default number of examples
TOKENS = 32  # tokens of a random text


@dataclass(frozen=True)
class Subject:
    """A model, opened with some examples.

    `inputs` are the arguments of its `forward`, (N, …); for a graph model, one graph or a batch of graphs.
    """

    model: nn.Module  # in evaluation mode, on the CPU
    preset: Preset
    inputs: tuple[Tensor, ...]
    target: Tensor | None = None  # targets of these examples; None if unknown
    split: Split | None = None  # source of the examples, with their names, images and rows
    rows: tuple[int, ...] = ()  # indices of the examples in the split
    preprocessing: Preprocessing | None = None  # None without data: the examples are random
    task: Task | None = None
    run: Run | None = None
    notes: tuple[str, ...] = ()  # sentences for the user
    options: Mapping[str, str] = field(default_factory=dict)  # options of the views, as typed
    given: bool = False  # whether the user gave the examples; without that and a split they are random
    untrained: str = ""  # the part of the model known to be untrained: "model", "head" or none
    whole: DataSet | None = None  # the data, if it is loaded already

    @property
    def config(self) -> Any:
        """Return the model's configuration; that of a custom module is the one of its `CustomPreset`."""
        return self.preset.config if isinstance(self.preset, CustomPreset) else self.model.config

    @property
    def called(self) -> str:
        """Return the name of the model: its preset, or its architecture with the settings that differ from the preset.

        Settings that the data of a run determines, such as the number of classes, do not count.
        """
        if isinstance(self.preset, CustomPreset):
            return self.preset.name
        plain = self.preset.configure(self.run.spec) if self.run is not None else self.preset.config
        other = diff(self.config, plain) if self.config != plain else {}
        return (
            f"{type(self.model).__name__} ({self.preset.name}{settings_phrase(other)})" if other else self.preset.name
        )

    @property
    def family(self) -> str:
        """Return the family of the model: dense, cnn, rnn, graph or transformer."""
        return self.preset.card.card.family

    @property
    def kind(self) -> str:
        """Return the kind of data that the model takes: table, image, text, …"""
        if self.spec is None and isinstance(self.preset, CustomPreset):
            return input_kind(self.inputs)
        return self.spec.kind if self.spec else input_modality(self.preset, self.config)

    @property
    def spec(self) -> Spec | None:
        """Return the spec of an example, or None for a model without data."""
        return self.preprocessing.spec if self.preprocessing else None

    @property
    def count(self) -> int:
        """Return the number of examples; for a graph, the number of selected nodes."""
        return len(self.rows) or len(self.inputs[0])

    @functools.cached_property
    def data(self) -> DataSet | None:
        """The training data, or None if the model has none or it is no longer available."""
        if self.whole is not None or self.run is None:
            return self.whole
        try:
            return _load_data(self.run)
        except (DataError, FileError):
            return None

    def name(self, i: int) -> str:
        """Return the name of example i."""
        if not self.split or not self.rows:
            return f"example {i + 1}" if self.given else f"random example {i + 1}"
        name = self.split.name(self.rows[i])
        return f"the forecast {name}" if name.startswith("from ") and self.kind == "series" else name

    def image(self, i: int) -> Image | None:
        """Return example i as the original image, or None."""
        return self.split.image(self.rows[i]) if self.split and self.rows else None

    def tokens(self, i: int, side: int = 0) -> list[str]:
        """Return the tokens of example i as text, without padding; with `side` 1, those of the output sequence.

        Without a tokenizer they are numbered. Those of an image are named by their pixel: start, r0 c0, r0 c1, …,
        after the words of its caption.

        Raises:
            ModelError: If the examples have no tokens.
        """
        if self.kind == "image" and side == 0 and self.inputs[0].ndim == 2:
            rows, columns = self.config.sides
            words = [f"word {k + 1}" for k in range(self.config.caption)]
            if isinstance(self.preprocessing, CaptionedTokenPreprocessing):
                words = [word or "(padding)" for word in self.preprocessing.words(self.inputs[0][i, : len(words)])]
            labels = [*words, "start", *(f"r{r} c{c}" for r in range(rows) for c in range(columns))]
            return labels[: self.inputs[0].shape[1]]
        if self.kind not in OF_TOKENS and not (side == 1 and isinstance(self.model, SupportsDecoding)):
            raise ModelError(f"{self.preset.name} is shown with {self.kind} data, which has no tokens.")
        ids, mask = (self.inputs[0], self.inputs[1]) if side == 0 else (self.inputs[-1], None)
        real = ids[i] if mask is None else ids[i][mask[i]]
        written = self.vocabulary(side)
        return [written[t] if t < len(written) else f"token {t}" for t in real.tolist()]

    def vocabulary(self, side: int = 0) -> list[str]:
        """Return the text of every token by its id, or an empty list without a tokenizer; `side` as in `tokens`."""
        given = self.preprocessing
        if isinstance(given, PuzzlePreprocessing):
            return given.names
        writes = self.spec is not None and self.spec.target.written
        name = ("source_tokenizer", "target_tokenizer")[side] if writes else "tokenizer"
        tokenizer = getattr(given, name, None)
        target = self.spec.target if self.spec is not None else None
        if isinstance(target, Transcript) and side == 1:
            return ["(begin or end)", *target.alphabet]
        if tokenizer is None:
            return []
        ours = writes and tokenizer.kind != PRETRAINED
        shifted = ours and (side == 1 or getattr(self.spec, "joint_vocab", False))
        words = [*tokenizer.tokens, *self._beyond(len(tokenizer.tokens))]
        return ["(padding)", "(unknown)", "(begin)", "(end)", *words[2:]] if shifted else words

    def _beyond(self, known: int) -> list[str]:
        """Return the tokens beyond the `known` ones of the tokenizer: [CLS], [SEP] and [MASK]."""
        begin, end = (getattr(self.spec, name, None) for name in ("begin", "end"))
        target = getattr(self.spec, "target", None)
        mask = target.mask if isinstance(target, Masked) else None
        names = {i: name for i, name in ((begin, "[CLS]"), (end, "[SEP]"), (mask, "[MASK]")) if i is not None}
        return [names.get(i, f"token {i}") for i in range(known, max(names, default=0) + 1)]

    def outputs(self) -> Tensor:
        """Return the outputs of the model for the examples, without gradients."""
        with torch.no_grad():
            return as_output_tuple(self.model(*self.inputs))[0]

    def loss(self) -> Tensor:
        """Return the mean loss of the examples, with gradients.

        Without a target, the loss uses random targets from a fixed seed; that is enough to measure gradient flow.
        """
        outputs = as_output_tuple(self.model(*self.inputs))[0]
        if self.task is not None and self.target is not None:
            return self.task.loss(outputs, self.target) / self.task.loss_denominator(self.target)
        outputs = outputs.movedim(1, -1) if outputs.ndim == 4 else outputs  # (N, H, W, K)
        flat = outputs.flatten(0, -2) if outputs.ndim > 1 else outputs[:, None]
        generator = torch.Generator().manual_seed(0)
        if flat.shape[1] == 1:
            return F.mse_loss(flat, torch.randn(flat.shape, generator=generator).to(flat))
        return F.cross_entropy(flat, torch.randint(flat.shape[1], (len(flat),), generator=generator))

    def others(self, count: int, split: str = "test") -> Subject | None:
        """Return the same model with the first `count` examples of a split of its data, or None without data.

        If the split does not exist, the first of test, val and train that exists is used.
        """
        if self.data is None:
            return None
        here = dataclasses.replace(self, whole=self.data)  # avoids reading it again
        names = [split, *(name for name in ("test", "val", "train") if name != split)]
        found = next(self.data.splits[name] for name in names if name in self.data.splits)
        return with_examples(here, found, range(min(count, len(found))))


@functools.lru_cache(maxsize=1)
def _load_data(run: Run) -> DataSet:
    """Load the data of a run, once for all views."""
    return run.data()


def with_examples(subject: Subject, split: Split, rows: Sequence[int]) -> Subject:
    """Return the subject with these examples of a split."""
    single_examples: Callable[[], Split] | None = getattr(split, "single_examples", None)  # of episodes
    split = single_examples() if single_examples else split
    rows = rows[: len(split)]
    index = torch.as_tensor(list(rows), dtype=torch.int64)
    batch = next(iter(split.batches([index])))
    dtype = next((p.dtype for p in subject.model.parameters() if p.is_floating_point()), torch.float32)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in batch.inputs)
    target = batch.target if split.target is not None else None
    return dataclasses.replace(subject, inputs=inputs, target=target, split=split, rows=tuple(rows))


def with_first(subject: Subject, count: int) -> Subject:
    """Return the subject with its first `count` examples; a graph is unchanged."""
    if subject.kind == "graph":
        return subject
    target = None if subject.target is None else subject.target[:count]
    inputs = tuple(x[:count] for x in subject.inputs)
    return dataclasses.replace(subject, inputs=inputs, target=target, rows=subject.rows[:count])


def open_run(run: Run, sources: Sequence[Any] = (), options: Mapping[str, str] | None = None) -> Subject:
    """Open a run with new examples, or with the first examples of its test split.

    New examples, files or an object as for `train`, go through the run's own preprocessing; of an object, only the
    first are used. If the data is no longer available, random examples replace it, and a note says so. The model is
    moved to the CPU. Exceptions of reading are passed on.
    """
    bare = Subject(
        run.model.cpu(),
        run.preset,
        (),
        preprocessing=run.preprocessing,
        task=run.task,
        run=run,
        options=dict(options or {}),
    )
    if len(sources) == 1 and is_batch(sources[0], run.preprocessing):
        split = run.preprocessing.examples(prepare_inputs(sources[0], run.preprocessing))
        first = (f"These are the first {FEW} of {len(split):,} examples.",) if len(split) > FEW else ()
        return dataclasses.replace(with_examples(bare, split, range(min(len(split), FEW))), notes=first)
    if sources:
        for source in sources:
            reject_unsupported_file(source)
        split = run.preprocessing.examples(sources)
        return with_examples(bare, split, range(len(split)))
    subject = bare.others(FEW)
    if subject is not None:
        return subject
    note = f"The data of this run, {run.about['data']['source']}, is missing or has changed: the examples are random."
    return dataclasses.replace(bare, inputs=_random_like(run.spec, run.model), notes=(note,))


def open_preset(
    name: str, settings: Mapping[str, Any] | None = None, options: Mapping[str, str] | None = None, count: int = 2
) -> Subject:
    """Open a preset with initial weights (seed 0) and `count` random examples."""
    found = preset(name)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = found.build(found.configure(settings=settings)).eval()
    inputs, notes = _random(found, model, count)
    return Subject(model, found, inputs, notes=notes, options=dict(options or {}), untrained="model")


def open_model(model: nn.Module, *inputs: Tensor, options: Mapping[str, str] | None = None, count: int = 2) -> Subject:
    """Open a model with the arguments of its `forward`, or a model of this package with `count` random examples.

    The model is left in evaluation mode. A model of this package has the name of the preset with the nearest
    configuration.

    Raises:
        ModelError: If it is a custom module without an example.
    """
    of_kind = [p for p in presets().values() if type(model) is p.module.Model]
    if not of_kind:
        own = CustomPreset(model)
        if not inputs:
            raise ModelError(
                f"The input of {own.name} is not known: pass an example batch, as in cutaway.look(model, x), batch "
                "dimension first."
            )
        return Subject(model.eval(), own, inputs, options=dict(options or {}), given=True)
    found = closest_preset(model.config, of_kind)
    given, notes = (inputs, ()) if inputs else _random(found, model, count)
    return Subject(model.eval(), found, given, notes=notes, options=dict(options or {}), given=bool(inputs))


def _random(found: Preset, model: nn.Module, count: int) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Return random examples for the model from a fixed seed, and a note on them."""
    generator = torch.Generator().manual_seed(0)
    shape = example_shape(found, model.config)
    shape = (min(TOKENS, *shape),) if input_modality(found, model.config) in OF_TOKENS else shape
    inputs = example_inputs(found, model.config, shape, count=count, generator=generator)
    return inputs, ("The model has no training data: the examples are random numbers.",)


def open_data(model: nn.Module, found: Preset, data: DataSet, task: Task, run: Run | None = None) -> Subject:
    """Open a model that is being trained on data in memory, with the first examples of its test split."""
    bare = Subject(model, found, (), preprocessing=data.preprocessing, task=task, run=run, whole=data)
    subject = bare.others(FEW)
    assert subject is not None, "the data is available"
    return subject


def _random_like(spec: Spec, model: nn.Module) -> tuple[Tensor, ...]:
    """Return one random example of the spec, in the precision of the model."""
    from ..inspect.example_inputs import inputs_for

    return inputs_for(model, spec, torch.Generator().manual_seed(0))


def examples_text(subject: Subject) -> str:
    """Return the opened examples in words: 8 examples, a graph of 34 nodes, 8 graphs of 165 nodes."""
    if subject.kind != "graph":
        return plural(subject.count, "example" if subject.given or subject.split is not None else "random example")
    nodes = plural(len(subject.inputs[0]), "node")
    batch = graph_index(subject.inputs)
    graphs = int(batch.max()) + 1 if batch is not None and len(batch) else 1
    return f"a graph of {nodes}" if graphs == 1 else f"{count(graphs)} graphs of {nodes} together"


def graph_index(inputs: Sequence[Tensor]) -> Tensor | None:
    """Return the graph index of each node, (V,), if the inputs are whole graphs; else None."""
    return inputs[3] if len(inputs) > 3 and len(inputs[3]) else None


def node_labels(subject: Subject) -> list[str]:
    """Return the names of the nodes of batched graphs, such as atoms; an empty list if they have no names."""
    called = getattr(subject.split, "node_names", None)
    names: list[str] = called(subject.rows) if called is not None and subject.rows else []
    return names if len(names) == len(subject.inputs[0]) else []


def get_target(subject: Subject) -> Target | None:
    """Return the target that the model was trained to predict, or None for a model without data."""
    return subject.spec.target if subject.spec is not None else None


def parse_choice(options: Mapping[str, str], key: str, known: Sequence[str], kind: str) -> str | None:
    """Return the option `key`, one of `known`, or None without the option.

    Raises:
        UnknownName: If the value is not in `known`; the message has the nearest names.
    """
    value = options.get(key)
    if value is not None and value not in known:
        raise UnknownName(kind, value, known)
    return value


def parse_index(options: Mapping[str, str], key: str, default: int, below: int) -> int:
    """Return the option `key` as an integer from 0 to `below` − 1.

    Raises:
        SettingError: If the option is not such an integer.
    """
    value = options.get(key)
    if value is None:
        return default
    number = int(value) if value.strip().isdecimal() else -1
    if not 0 <= number < below:
        raise SettingError(f"Invalid {key}={value}: must be an integer from 0 to {below - 1}.")
    return number


HEAD_ALONE = "head"  # the untrained part of a model from a folder without a head
RANDOM = "The examples are random numbers."
LARGE = 20_000_000  # parameters of a preset above which one random example is used


def open_subject(
    what: Run | nn.Module | str | os.PathLike[str],
    inputs: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Subject:
    """Open a target with these examples.

    `options` that begin with `model.` are settings of a preset; the others are for the views.

    Raises:
        CutawayError: If the user can fix the problem.
    """
    given = dict(options or {})
    settings, others = split_model_settings(given)
    asked = {key: str(value) for key, value in others.items()}
    if isinstance(what, nn.Module):
        _reject_settings(settings, "a model object")
        return _open_module(what, inputs, asked)
    if isinstance(what, Run):
        _reject_settings(settings, "a run")
        return open_run(what, inputs, asked)
    if not isinstance(what, str | os.PathLike):
        raise SettingError(f"Invalid target of type {type(what).__name__}: must be a run, a model, or a path or name.")
    path = resolve_path(what)
    if IMAGES.fits(Path(what)) and name is None and not path.is_dir():
        _reject_settings(settings, "a photo")
        return open_photo(Path(what), inputs, asked)
    if path.exists():
        _reject_settings(settings, "a model with weights")
        if (path / "run.json").is_file():
            return open_run(Run(path), inputs, asked)
        return _from_files(path, inputs, asked, name)
    known = {p.name: p for p in presets().values()} | {p.file_name: p for p in presets().values()}
    if str(what) not in known:
        hint = "`cutaway list` shows the models; runs are in runs/."
        if is_path(what):
            raise missing_file_error(what, "run, folder or model", hint)
        raise UnknownName("run, folder or model", str(what), presets(), hint)
    subject = open_preset(str(what), settings, asked)
    if inputs:
        return _with_files(subject, inputs, None)
    large = sum(p.numel() for p in subject.model.parameters()) > LARGE
    return with_first(subject, 1) if large else subject


def open_photo(path: Path, others: Sequence[Any] = (), options: Mapping[str, str] | None = None) -> Subject:
    """Open an image file with the kernels of the option `kernel`, by default Sobel's, in place of a network.

    Raises:
        SettingError: If more than one file is given, or the kernel is invalid.
        DataError: If the file does not exist or is not a usable image.
    """
    if others:
        raise SettingError(
            f"Invalid input {str(others[0])!r}: a photo without a model is inspected alone. Run the command once for "
            "each photo."
        )
    list_image_files(path)  # checks that it exists
    asked = dict(options or {})
    given = [asked.pop(key) for key in ("kernel", "filters.kernel") if key in asked]
    way = photo_preprocessing(path)
    model = FixedKernels(parse_kernel(given[-1] if given else "sobel")).eval()
    subject = Subject(model, PhotoPreset(model, path.name), (), preprocessing=way, options=asked, given=True)
    return with_examples(subject, way.examples([path]), (0,))


def _open_module(model: nn.Module, inputs: Sequence[Any], asked: Mapping[str, str]) -> Subject:
    """Open a module. Raises DataError for inputs that are not tensors."""
    if strange := next((x for x in inputs if not isinstance(x, Tensor)), None):
        raise DataError(
            f"Invalid example {strange!r}: examples of a model object must be tensors, as its forward takes them.",
            fix="To use files, give the folder of a run.",
        )
    subject = open_model(model, *inputs, options=asked)
    return subject if inputs else dataclasses.replace(subject, notes=(RANDOM,))  # it is unknown whether it was trained


def _from_files(path: Path, inputs: Sequence[Any], asked: Mapping[str, str], name: str | None) -> Subject:
    """Open a model folder, a Hugging Face folder, or a torchvision checkpoint.

    The user's files are the examples if there is preprocessing for them.
    """
    if path.is_dir() and not is_folder(path) and not (path / CONFIG).is_file():
        raise NotARunError(
            f"{path} is not a run or a model folder (Cutaway or Hugging Face): it has no run.json and no {CONFIG}. "
            "`cutaway train` creates runs, by default in runs/."
        )
    if path.is_file() and name is None:
        raise NotARunError(
            f"{path} is a file, not the folder of a run. For a torchvision checkpoint, name its model: `cutaway "
            f"inspect {path} --model NAME`. The name of a photo ends in {', '.join(IMAGES.suffixes)}."
        )
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


def _with_files(
    subject: Subject, inputs: Sequence[Any], model_folder: Path | None, notes: Sequence[str] = ()
) -> Subject:
    """Return the subject with the user's files as examples, preprocessed as `model_folder` or the preset says.

    `notes` replaces its notes.
    """
    way, told = find_preprocessing(subject.preset, subject.config, model_folder)
    split = way.examples([str(x) if isinstance(x, os.PathLike) else x for x in inputs])
    subject = dataclasses.replace(subject, preprocessing=way, notes=(*notes, *((told,) if told else ())))
    return with_examples(subject, split, range(len(split)))


def _reject_settings(settings: Mapping[str, Any], of: str) -> None:
    """Raise SettingError if model settings are given for a model that exists already."""
    if settings:
        key = next(iter(settings))
        raise IncompatibleSettingError(
            f"Invalid model.{key}: only an untrained preset takes model settings, and this is {of}. Leave it out."
        )


PREPROCESSING, TOKENIZER = "preprocessing.json", "tokenizer.json"
LENGTH = 512  # most tokens that are read, if the model has no limit
# The mean and standard deviation of ImageNet's pixels, which torchvision's and most other networks were trained with.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find_preprocessing(preset: Preset, config: Any, folder: Path | None) -> tuple[Preprocessing, str]:
    """Return the preprocessing for a model without a run, and a sentence on its origin.

    A folder of Cutaway may contain its own preprocessing, and a folder of Hugging Face a tokenizer. Vision models get
    images of their size.

    Raises:
        DataError: If there is no preprocessing.
    """
    if folder is not None and (folder / PREPROCESSING).is_file():
        return read_preprocessing(folder / PREPROCESSING), ""
    kind = input_modality(preset, config)
    if kind == "image":
        return _images(preset, config)
    if kind == "text" and folder is not None and (folder / TOKENIZER).is_file():
        return _texts(config, folder / TOKENIZER), ""
    lacking = {
        "text": "no tokenizer",
        "seq2seq": "no tokenizers",
        "table": "no column encoders",
    }.get(kind, f"no preprocessing for {kind} data")
    raise UnsupportedDataError(
        f"{preset.name} has {lacking}, so INPUT cannot be files.",
        fix="Leave INPUT out for random examples, or train the model on your data and give the folder of the run.",
    )


def _images(preset: Preset, config: Any) -> tuple[Preprocessing, str]:
    channels, height, width = example_shape(preset, config)
    mean, std = IMAGENET if channels == 3 else ((0.5,) * channels, (0.5,) * channels)
    spec = ImageSpec(channels, height, width, _classes(config))
    made = ImagePreprocessing(spec, mean, std, "crop", (height, width), (0,) * channels)
    told = f"The images are cropped to {height} × {width} and normalized with ImageNet statistics, because the "
    return made, told + "preprocessing of this model is not known."


def _texts(config: Any, file: Path) -> Preprocessing:
    tokenizer = open_tokenizer(file)
    length = min(LENGTH, getattr(config, "context_length", None) or LENGTH)
    vocab_size, head = config.vocab_size, getattr(config, "head", "classes")
    target: Any = _classes(config)
    if head == "masked":
        target = Masked(vocab_size, tokenizer.mask or 0)
    elif head == "next":
        target = NextToken(vocab_size)
    framed = tokenizer.begin is not None and tokenizer.end is not None and tokenizer.begin != tokenizer.end
    frame = (tokenizer.begin, tokenizer.end) if framed else (None, None)
    return TextPreprocessing(TextSpec(vocab_size, length, target, *frame), tokenizer, length)


def _classes(config: Any) -> Classes | Value:
    count = getattr(config, "num_classes", 0) or 0
    return Classes(tuple(f"class {k}" for k in range(count))) if count > 1 else Value()
