"""Problems with written solutions as text: the loss covers only what follows the question.

Id 0 is padding, 1 unknown, 2 ends a solution, and from 3 on are the tokens of the kind of problem (`data.problems`). A
problem may have many solutions; one is drawn again in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...core import spec as specs
from ...core.errors import DataError, SettingError
from ...core.spec import Solution, TextSpec
from ..dataset_base import IGNORED, Batch, Split
from ..problems import PROBLEMS, Problem
from ..samplers import bucket_batches

PADDING, UNKNOWN, END = 0, 1, 2
FIRST = 3  # the id of the first token of the vocabulary
AS_READ = 0  # the seed of the solutions for evaluation


class ProblemSplit(Split):
    """Problems in each of the forms: example i is problem i // forms in form i % forms.

    A batch has inputs (N, T) and a mask, and targets (N, T) that are IGNORED up to the question's end.
    """

    def __init__(self, preprocessing: ProblemPreprocessing, problems: Sequence[str], forms: Sequence[str]) -> None:
        self.preprocessing, self.problems, self.forms = preprocessing, problems, forms
        self.kind = preprocessing.kind

    def __len__(self) -> int:
        return len(self.problems) * len(self.forms)

    @cached_property
    def target(self) -> Tensor:  # type: ignore[override]  # lazy: takes as long as an epoch and is rarely needed
        """The targets of all examples, (n, T), with the solutions for evaluation."""
        return next(iter(self.batches([torch.arange(len(self))]))).target

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Return batches of one form where possible, because those have similar lengths."""
        return bucket_batches(self._lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches with the solutions drawn from the seed."""
        for index in order:
            pairs = [self.example(i, AS_READ if seed is None else seed) for i in index.tolist()]
            yield Batch(*self.preprocessing.batch(pairs))

    def example(self, i: int, seed: int = AS_READ) -> tuple[str, str]:
        """Return the prompt and a solution."""
        return self.kind.example(self.problem(i), self.form(i), Random(f"{seed} {i}"))

    def problem(self, i: int) -> str:
        """Return the problem of an example."""
        return self.problems[i // len(self.forms)]

    def form(self, i: int) -> str:
        """Return the form of an example."""
        return self.forms[i % len(self.forms)]

    def name(self, i: int) -> str:
        """Return the prompt."""
        return " ".join(self.kind.ask(self.problem(i), self.form(i)).split())

    def row(self, i: int) -> dict[str, str] | None:
        """Return the problem."""
        return {"problem": self.problem(i)}

    @cached_property
    def _lengths(self) -> Tensor:
        """The approximate number of tokens of each example, that of the first example of its form, (n,)."""
        each = [sum(len(self.kind.cut(text)) for text in self.example(k)) for k in range(len(self.forms))]
        return torch.tensor(each).repeat(len(self.problems))


class QuestionSplit(ProblemSplit):
    """Problems given by a user, without targets."""

    target = None  # type: ignore[assignment]

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches of questions only."""
        for index in order:
            ids, mask = self.preprocessing.encode_questions([self.problem(i) for i in index.tolist()])
            yield Batch((ids, mask), torch.empty(len(ids), 0))


@dataclass(frozen=True)
class ProblemPreprocessing:
    """Conversion of problems and solutions to ids, and of ids to text."""

    spec: TextSpec

    SCHEMA: ClassVar[Mapping[str, Any]] = {"spec": specs.SCHEMA}

    @property
    def kind(self) -> Problem:
        """The kind of problem."""
        assert isinstance(self.spec.target, Solution)
        return PROBLEMS[self.spec.target.problem]

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that are learned."""
        assert isinstance(self.spec.target, Solution)
        return self.spec.target.forms

    @property
    def form(self) -> str:
        """The form used for evaluation."""
        return self.forms[0]

    @property
    def never(self) -> list[int]:
        """The ids that are never generated: padding, unknown and the question token."""
        asking = getattr(self.kind, "question", None)
        return [PADDING, UNKNOWN, *([self.ids[asking]] if asking is not None else [])]

    def in_form(self, form: str | None) -> ProblemPreprocessing:
        """Return the same preprocessing with solutions in another form. Raises SettingError for an unknown form."""
        if form is None or form == self.form:
            return self
        if form not in self.forms:
            raise SettingError(f"form={form} was not learned: this run writes {', '.join(self.forms)}.")
        assert isinstance(self.spec.target, Solution)
        target = replace(self.spec.target, forms=(form, *(f for f in self.forms if f != form)))
        return replace(self, spec=replace(self.spec, target=target))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: FIRST + k for k, token in enumerate(self.kind.vocabulary)}

    @property
    def names(self) -> list[str]:
        """Every token by its id."""
        return ["(padding)", "(unknown)", "(end)", *self.kind.vocabulary]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [self.ids.get(token, UNKNOWN) for token in self.kind.cut(text)]

    def words(self, ids: Iterable[int]) -> str:
        """Return the text of ids, up to the end of the solution; padding is skipped."""
        tokens = []
        for i in ids:
            if i == END:
                break
            if i >= UNKNOWN:
                tokens.append(self.kind.vocabulary[i - FIRST] if i >= FIRST else "?")
        return self.kind.join(tokens)

    def batch(self, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return questions with their solutions: ids and mask (N, T), and the next token of each, (N, T)."""
        return pad_problems([(self.encode(asked), [*self.encode(solution), END]) for asked, solution in pairs])

    def encode_questions(self, problems: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return questions only: ids and mask (N, T)."""
        rows = [torch.tensor(self.encode(self.kind.ask(problem, self.form))) for problem in problems]
        ids = pad_sequence(rows, batch_first=True, padding_value=PADDING)
        return ids, ids != PADDING

    def examples(self, sources: Sequence[Any]) -> ProblemSplit:
        """Prepare typed problems. Raises DataError for an invalid or unsolvable one."""
        sources = [sources] if isinstance(sources, str) else list(sources)
        return QuestionSplit(self, [self.kind.read(str(one)) for one in sources], (self.form,))

    def labelled(self, source: str | Path) -> ProblemSplit:
        """Prepare a text file with a problem on each line; solutions are computed."""
        path = Path(source).expanduser()
        if not path.is_file():
            raise DataError(f"There is no file {str(source)!r}, seen from {Path.cwd()}.")
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise DataError(f"{path} holds no problem.", fix="Write one on each line.")
        return ProblemSplit(self, [self.kind.read(line) for line in lines], (self.form,))

    def adopted(self, split: Split, theirs: Any) -> ProblemSplit:
        """Prepare the problems of another set of the same kind."""
        if not isinstance(split, ProblemSplit) or split.kind.name != self.kind.name:
            raise DataError(f"These are other problems than the {self.kind.name} that this run learned.")
        return ProblemSplit(self, split.problems, (self.form,))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {"kind": "text", "form": "problems", "spec": specs.to_json(self.spec)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProblemPreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        found = cls(specs.read_spec(data["spec"], TextSpec, Solution))
        if len(found.kind.vocabulary) + FIRST != found.spec.vocab_size:
            raise ValueError("problems of this kind are written with other tokens now")
        return found


def pad_problems(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Pad questions with their solutions: ids and mask (N, T), and the next token of each, (N, T).

    The targets are IGNORED up to the question's end.
    """
    inputs = [torch.tensor([*asked, *solution[:-1]]) for asked, solution in rows]
    targets = [torch.tensor([*[IGNORED] * (len(asked) - 1), *solution]) for asked, solution in rows]
    ids = pad_sequence(inputs, batch_first=True, padding_value=PADDING)
    return (ids, ids != PADDING), pad_sequence(targets, batch_first=True, padding_value=IGNORED)
