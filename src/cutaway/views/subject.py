"""An opened model with its examples and their data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from PIL.Image import Image
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..checkpoints.match_config import closest_preset, diff, settings_phrase
from ..core.errors import DataError, FileError, ModelError
from ..core.spec import OF_TOKENS, Masked, Spec, Transcript
from ..data.dataset_base import DataSet, Preprocessing, Split
from ..data.in_memory.predict_inputs import is_batch, prepare_inputs
from ..data.text.problems import ProblemPreprocessing
from ..data.text.tokenizers import PRETRAINED
from ..inspect.attribution.target import input_kind
from ..inspect.example_inputs import example_inputs, example_shape, input_modality
from ..models.base import SupportsDecoding, as_output_tuple
from ..models.registry import Preset, preset, presets
from ..runs.run import Run
from ..tasks.task import Task

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

        Without a tokenizer they are numbered.

        Raises:
            ModelError: If the examples have no tokens.
        """
        if self.kind not in OF_TOKENS and not (side == 1 and isinstance(self.model, SupportsDecoding)):
            raise ModelError(f"{self.preset.name} is shown with {self.kind} data, which has no tokens.")
        ids, mask = (self.inputs[0], self.inputs[1]) if side == 0 else (self.inputs[-1], None)
        real = ids[i] if mask is None else ids[i][mask[i]]
        written = self.vocabulary(side)
        return [written[t] if t < len(written) else f"token {t}" for t in real.tolist()]

    def vocabulary(self, side: int = 0) -> list[str]:
        """Return the text of every token by its id, or an empty list without a tokenizer; `side` as in `tokens`."""
        given = self.preprocessing
        if isinstance(given, ProblemPreprocessing):
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
    alone: Callable[[], Split] | None = getattr(split, "alone", None)  # the examples of episodes
    split = alone() if alone else split
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


__all__ = ["FEW", "Subject", "open_data", "open_model", "open_preset", "open_run", "with_examples", "with_first"]
