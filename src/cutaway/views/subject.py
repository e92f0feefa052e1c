"""What is opened: a model, examples that go through it, and as much as is known of where both come from."""

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

from ..checkpoints.custom import Own
from ..checkpoints.match_config import differing, nearest, with_settings
from ..core.errors import DataError, FileError, ModelError
from ..core.spec import OF_TOKENS, Masked, Spec, Transcript
from ..data.dataset_base import DataSet, Preprocessing, Split
from ..data.in_memory.predict_inputs import holds_examples, new_examples
from ..data.text.problems import ProblemPreprocessing
from ..data.text.tokenizers import PRETRAINED
from ..inspect.attribution.target import kind_of
from ..inspect.example_inputs import example_inputs, example_shape, kind_taken
from ..models.base import Decodes
from ..models.images import answers_of
from ..models.registry import Preset, preset, presets
from ..runs.run import Run
from ..tasks.task import Task

FEW = 8  # examples that are looked at, where the person names none
TOKENS = 32  # of a random text


@dataclass(frozen=True)
class Subject:
    """One model, opened with some examples. `inputs` are what its `forward` takes, (N, …); of a graph, the graph."""

    model: nn.Module  # in evaluation mode, on the CPU
    preset: Preset
    inputs: tuple[Tensor, ...]
    target: Tensor | None = None  # of these examples, as the task has it; None where nobody knows it
    split: Split | None = None  # where the examples come from: their names, images and rows
    rows: tuple[int, ...] = ()  # which examples of the split they are
    preprocessing: Preprocessing | None = None  # None: nothing was learned from, and numbers are random
    task: Task | None = None
    run: Run | None = None
    notes: tuple[str, ...] = ()  # sentences that a person should read
    options: Mapping[str, str] = field(default_factory=dict)  # what was asked of the views, as typed
    given: bool = False  # whether a person handed the examples over; without that and a split they are random
    untrained: str = ""  # what of the model is known to be as it began: "model", "head" or nothing
    whole: DataSet | None = None  # the data, where it is at hand already

    @property
    def config(self) -> Any:
        """The model's settings; of a module of one's own none that is known here."""
        return self.preset.config if isinstance(self.preset, Own) else self.model.config

    @property
    def called(self) -> str:
        """What the model is called: its preset's name, where it is that preset, and else its architecture's with what
        is other. What the data of a run decides, such as the classes, makes it no other model."""
        if isinstance(self.preset, Own):
            return self.preset.name
        plain = self.preset.configure(self.run.spec) if self.run is not None else self.preset.config
        other = differing(self.config, plain) if self.config != plain else {}
        return f"{type(self.model).__name__} ({self.preset.name}{with_settings(other)})" if other else self.preset.name

    @property
    def family(self) -> str:
        """dense, cnn, rnn, graph or transformer."""
        return self.preset.card.card.family

    @property
    def kind(self) -> str:
        """The kind of data that it takes: table, image, text, …"""
        if self.spec is None and isinstance(self.preset, Own):
            return kind_of(self.inputs)
        return self.spec.kind if self.spec else kind_taken(self.preset, self.config)

    @property
    def spec(self) -> Spec | None:
        """What an example looks like; None where the model has not met data."""
        return self.preprocessing.spec if self.preprocessing else None

    @property
    def count(self) -> int:
        """How many examples there are; of a graph, how many nodes are asked for."""
        return len(self.rows) or len(self.inputs[0])

    @functools.cached_property
    def data(self) -> DataSet | None:
        """The data that was learned from; None where there is none, or it is not at hand any more."""
        if self.whole is not None or self.run is None:
            return self.whole
        try:
            return _data_of(self.run)
        except (DataError, FileError):
            return None

    def name(self, i: int) -> str:
        """What a person calls example i."""
        if not self.split or not self.rows:
            return f"example {i + 1}" if self.given else f"random example {i + 1}"
        name = self.split.name(self.rows[i])
        return f"the forecast {name}" if name.startswith("from ") and self.kind == "series" else name

    def image(self, i: int) -> Image | None:
        """Example i as an image as the person gave it, or None."""
        return self.split.image(self.rows[i]) if self.split and self.rows else None

    def tokens(self, i: int, side: int = 0) -> list[str]:
        """The tokens of example i as they are written, padding left out; `side` 1 is what is written. Where there
        is no tokenizer they are their numbers. Raises ModelError where examples are not made of tokens."""
        if self.kind not in OF_TOKENS and not (side == 1 and isinstance(self.model, Decodes)):
            raise ModelError(f"{self.preset.name} was opened with {self.kind} data, which has no tokens.")
        ids, mask = (self.inputs[0], self.inputs[1]) if side == 0 else (self.inputs[-1], None)
        real = ids[i] if mask is None else ids[i][mask[i]]
        written = self.vocabulary(side)
        return [written[t] if t < len(written) else f"token {t}" for t in real.tolist()]

    def vocabulary(self, side: int = 0) -> list[str]:
        """Every token as it is written, by its id; none where there is no tokenizer. `side` as in `tokens`."""
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
        """The tokens that are not the tokenizer's, of which there are `known`: those that frame a text, and the one
        that stands for what is hidden."""
        begin, end = (getattr(self.spec, name, None) for name in ("begin", "end"))
        target = getattr(self.spec, "target", None)
        mask = target.mask if isinstance(target, Masked) else None
        names = {i: name for i, name in ((begin, "[CLS]"), (end, "[SEP]"), (mask, "[MASK]")) if i is not None}
        return [names.get(i, f"token {i}") for i in range(known, max(names, default=0) + 1)]

    def outputs(self) -> Tensor:
        """What the head gives for the examples, without gradients."""
        with torch.no_grad():
            return answers_of(self.model(*self.inputs))[0]

    def loss(self) -> Tensor:
        """The mean loss of the examples, to be differentiated. What has no target is compared with targets drawn at
        random, the same every time: enough to see how gradients travel."""
        outputs = answers_of(self.model(*self.inputs))[0]
        if self.task is not None and self.target is not None:
            return self.task.loss(outputs, self.target) / self.task.count(self.target)
        outputs = outputs.movedim(1, -1) if outputs.ndim == 4 else outputs  # (N, H, W, K)
        flat = outputs.flatten(0, -2) if outputs.ndim > 1 else outputs[:, None]
        generator = torch.Generator().manual_seed(0)
        if flat.shape[1] == 1:
            return F.mse_loss(flat, torch.randn(flat.shape, generator=generator).to(flat))
        return F.cross_entropy(flat, torch.randint(flat.shape[1], (len(flat),), generator=generator))

    def others(self, count: int, split: str = "test") -> Subject | None:
        """The same model with up to `count` examples of a split of its data, the same every time; None where there is
        no data at hand. Of a split that is not there the next is taken: test, val, train."""
        if self.data is None:
            return None
        here = dataclasses.replace(self, whole=self.data)  # so that nobody reads it again
        names = [split, *(name for name in ("test", "val", "train") if name != split)]
        found = next(self.data.splits[name] for name in names if name in self.data.splits)
        return with_examples(here, found, range(min(count, len(found))))


@functools.lru_cache(maxsize=1)
def _data_of(run: Run) -> DataSet:
    """The data of a run, read once for all views of it."""
    return run.data()


def with_examples(subject: Subject, split: Split, rows: Sequence[int]) -> Subject:
    """The subject with these examples of a split."""
    alone: Callable[[], Split] | None = getattr(split, "alone", None)  # of episodes, their examples
    split = alone() if alone else split
    rows = rows[: len(split)]
    index = torch.as_tensor(list(rows), dtype=torch.int64)
    batch = next(iter(split.batches([index])))
    dtype = next((p.dtype for p in subject.model.parameters() if p.is_floating_point()), torch.float32)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in batch.inputs)
    target = batch.target if split.target is not None else None
    return dataclasses.replace(subject, inputs=inputs, target=target, split=split, rows=tuple(rows))


def with_first(subject: Subject, count: int) -> Subject:
    """The subject with its first examples alone; a graph stays whole."""
    if subject.kind == "graph":
        return subject
    target = None if subject.target is None else subject.target[:count]
    inputs = tuple(x[:count] for x in subject.inputs)
    return dataclasses.replace(subject, inputs=inputs, target=target, rows=subject.rows[:count])


def open_run(run: Run, sources: Sequence[Any] = (), options: Mapping[str, str] | None = None) -> Subject:
    """A run, with new examples through its own preprocessing, files or an object that holds some as `train` takes them,
    of which the first are looked at; or with the first of its test split where none are named.

    Where its data is not at hand any more, random examples stand in, and a note says so. The model is brought to the
    CPU, where examples are. Raises what reading raises.
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
    if len(sources) == 1 and holds_examples(sources[0], run.preprocessing):
        split = run.preprocessing.examples(new_examples(sources[0], run.preprocessing))
        first = (f"These are the first {FEW} of {len(split):,} examples.",) if len(split) > FEW else ()
        return dataclasses.replace(with_examples(bare, split, range(min(len(split), FEW))), notes=first)
    if sources:
        split = run.preprocessing.examples(sources)
        return with_examples(bare, split, range(len(split)))
    subject = bare.others(FEW)
    if subject is not None:
        return subject
    note = (
        f"The data of this run, {run.about['data']['source']}, is not at hand or not what it was: examples are random."
    )
    return dataclasses.replace(bare, inputs=_like(run.spec, run.model), notes=(note,))


def open_preset(
    name: str, settings: Mapping[str, Any] | None = None, options: Mapping[str, str] | None = None, count: int = 2
) -> Subject:
    """A preset with weights as they begin (seed 0) and `count` random examples, which are noise."""
    found = preset(name)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = found.build(found.configure(settings=settings)).eval()
    inputs, notes = _random(found, model, count)
    return Subject(model, found, inputs, notes=notes, options=dict(options or {}), untrained="model")


def open_model(model: nn.Module, *inputs: Tensor, options: Mapping[str, str] | None = None, count: int = 2) -> Subject:
    """A model with what its `forward` takes, or one of this package with `count` random examples. Left in evaluation
    mode. One of this package is called by the preset that its config is, or is nearest to.

    Raises ModelError for a module of one's own without an example.
    """
    of_kind = [p for p in presets().values() if type(model) is p.module.Model]
    if not of_kind:
        own = Own(model)
        if not inputs:
            raise ModelError(
                f"What {own.name} takes nobody knows here: give an example of it, as in cutaway.look(model, x), with "
                "the batch first."
            )
        return Subject(model.eval(), own, inputs, options=dict(options or {}), given=True)
    found = nearest(model.config, of_kind)
    given, notes = (inputs, ()) if inputs else _random(found, model, count)
    return Subject(model.eval(), found, given, notes=notes, options=dict(options or {}), given=bool(inputs))


def _random(found: Preset, model: nn.Module, count: int) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Random examples for the model, the same every time, and a note that says so."""
    generator = torch.Generator().manual_seed(0)
    shape = example_shape(found, model.config)
    shape = (min(TOKENS, *shape),) if kind_taken(found, model.config) in OF_TOKENS else shape
    inputs = example_inputs(found, model.config, shape, count=count, generator=generator)
    return inputs, ("Nothing was learned from data here: the examples are random numbers.",)


def open_data(model: nn.Module, found: Preset, data: DataSet, task: Task, run: Run | None = None) -> Subject:
    """A model that learns from data at hand, with the first examples of its test split."""
    bare = Subject(model, found, (), preprocessing=data.preprocessing, task=task, run=run, whole=data)
    subject = bare.others(FEW)
    assert subject is not None, "the data is at hand"
    return subject


def _like(spec: Spec, model: nn.Module) -> tuple[Tensor, ...]:
    """One random example of that spec, in the precision of the model."""
    from ..inspect.example_inputs import inputs_for

    return inputs_for(model, spec, torch.Generator().manual_seed(0))


__all__ = ["FEW", "Subject", "open_data", "open_model", "open_preset", "open_run", "with_examples", "with_first"]
