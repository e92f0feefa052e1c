"""A problem solved in writing: the proposed steps, and the network's attention and probabilities at each."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ..core.config import parse
from ..core.errors import SettingError
from ..data.text.puzzles import PuzzlePreprocessing, PuzzleSplit
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, number, plural
from ..inference.language_model_thinker import solution_form, think
from ..inference.thought_search import Method, SearchResult
from ..models.base import SupportsKVCache
from ..runs.predict import reject_method
from .attention_capture import num_heads_by_name
from .common import parse_choice, parse_index
from .generation_trace import GenerationTrace, num_weights, trace_drawing, trace_text
from .search_tree import SAYS_OF, THOUGHT, Step, search_steps, steps_drawing
from .subject import Subject

SAYS = "reasoning in text: the search tree or chains of thoughts, token probabilities and attention of each step"
READ = (
    "A column holds the steps of one depth: those of the answer first, then sorted by value. A line connects each step "
    "to its parent. The bar at the bottom of a step is the value that the model assigned to it; steps below the cut "
    "were pruned. The signs show whether a step is correct; this is computed here and not given to the model. Click a "
    "step to see the probability of each token, the alternatives, and the attention of each head before the token. A "
    "token of low probability is where the search branched. log p is the sum over the tokens of a step; the table "
    "counts the samples that gave each."
)
MISLEADS = (
    "A value is the model's own estimate, a single token, and can be confident in a wrong step: compare it with the "
    "signs. The written steps need not be how the network computed its answer: it can know the answer before it writes "
    "the steps, or continue correctly after a wrong one (Turpin et al. 2023, https://arxiv.org/abs/2305.04388; Lanham "
    "et al. 2023, https://arxiv.org/abs/2307.13702). Attention is not importance. Probabilities are those at "
    "temperature 1, while samples are drawn at another temperature; another seed gives another tree. One tree does not "
    "show how often a method succeeds: use `cutaway evaluate`."
)
OPTIONS: dict[str, str] = {
    "example": "index of the problem, from 0",
    "method": "search method, as in `cutaway generate`; default tree if the run supports it, else greedy",
    "breadth": "thoughts kept at each depth of a tree; default 3",
    "proposals": "thoughts sampled after each thought; default 8",
    "depth": "steps of a tree; default 3",
    "threshold": "depth-first search: thoughts of lower value are not expanded",
    "budget": "depth-first search: maximum number of expanded thoughts; default 30",
    "samples": "number of sampled chains; default 8",
    "temperature": "sampling temperature; default 0.7",
    "seed": "sampling seed; default 0",
    "thought": "step that is selected first, from 1",
    "layer": "for deep models: attention module whose heads are shown separately",
}
USUAL = {"breadth": 3, "samples": 8, "budget": 30}  # smaller than the defaults of a search, to fit on a page
HEADS = 24  # most heads that are shown separately; with more, the mean of each layer is shown
NUMBERS = 120_000  # most attention weights on the page


@dataclass(frozen=True)
class _OpenedSteps:
    """The steps that can be opened, and the reason if some cannot."""

    steps: list[Step]
    written: list[GenerationTrace]
    maps: list[str]  # layers whose heads are shown separately
    why: str


def suits(subject: Subject) -> bool:
    """Return whether the model solves problems in writing and has a cache that thoughts can share."""
    return isinstance(subject.preprocessing, PuzzlePreprocessing) and isinstance(subject.model, SupportsKVCache)


def view(subject: Subject) -> View:
    """Return the solution of one problem.

    Raises:
        UnknownName: If a named option has an unknown value.
        SettingError: If an option is invalid.
    """
    preprocessing = subject.preprocessing
    assert isinstance(preprocessing, PuzzlePreprocessing), "suits() checks for problems"
    assert isinstance(subject.split, PuzzleSplit), "problems are generated, so they are always available"
    problem = subject.split.problem(subject.rows[parse_index(subject.options, "example", 0, subject.count)])
    method = _method(subject, preprocessing)
    layers = list(num_heads_by_name(subject.model))
    layer = parse_choice(subject.options, "layer", layers, "layer with attention")
    (found,) = think(subject.model, preprocessing, [problem], method)
    preprocessing = preprocessing.in_form(solution_form(preprocessing, method))
    steps = search_steps(found, preprocessing, method)
    start = parse_index(subject.options, "thought", 0, len(steps) + 1) or None
    opened = _select_steps(subject, steps, start, [layer] if layer else layers)
    options = [
        {"name": step.name, "drawings": [trace_drawing(one, preprocessing.names, opened.maps, f"Step {step.number}")]}
        for step, one in zip(opened.steps, opened.written)
    ]
    first = next((k for k, step in enumerate(opened.steps) if step.number == start), 0)
    return View(
        id="thoughts",
        title="Thoughts",
        says=(
            f"How the network solves {problem}: every proposed step, its value and whether it is correct; click a step "
            "for its token probabilities and attention."
        ),
        summary=f"{_summary(found, steps, preprocessing, method)} {opened.why}",
        table=_numbers(steps),
        drawings=[
            steps_drawing(found, steps, method, opened.steps, opened.steps[first] if options else None),
            *([charts.choice("Tokens of one step", THOUGHT, options, start=first)] if options else []),
        ],
    )


def search_problem(
    model: nn.Module, preprocessing: PuzzlePreprocessing, problem: str
) -> tuple[SearchResult, list[Step], Drawing]:
    """Return the default search for a solution of one problem, its steps, and their drawing.

    Raises:
        ModelError: If the model has no cache.
    """
    method = default_method(preprocessing)
    (found,) = think(model, preprocessing, [problem], method)
    preprocessing = preprocessing.in_form(solution_form(preprocessing, method))
    steps = search_steps(found, preprocessing, method)
    for step in steps:
        if step.log_p is None:
            step.log_p = float(
                trace_text(model, step.before, step.tokens, preprocessing.never, looks=False).own().sum()
            )
    return found, steps, steps_drawing(found, steps, method)


def default_method(preprocessing: PuzzlePreprocessing) -> Method:
    """Return the default method: a tree if the run supports it, or else the most probable chain.

    The tree is narrower than that of a search for the best result.
    """
    tree = Method("tree", breadth=USUAL["breadth"], samples=USUAL["samples"], budget=USUAL["budget"])
    try:
        reject_method(preprocessing, tree)
    except SettingError:
        return dataclasses.replace(tree, method="greedy")
    return tree


def _method(subject: Subject, preprocessing: PuzzlePreprocessing) -> Method:
    """Return the method with the options of the view."""
    hints = typing.get_type_hints(Method)
    asked = {key: parse(key, value, hints[key]) for key, value in subject.options.items() if key in hints}
    method = dataclasses.replace(default_method(preprocessing), **asked)
    reject_method(preprocessing, method)
    return method


def _select_steps(subject: Subject, steps: list[Step], start: int | None, layers: Sequence[str]) -> _OpenedSteps:
    """Return the steps that fit on the page: those of the answer, then kept steps, then the others by value.

    This also sets log p of the steps of chains.
    """
    wanted = sorted(
        steps, key=lambda s: (s.number != start, not s.path, not s.kept, -(s.thought.value or 0.0), s.number)
    )
    heads = sum(count for name, count in num_heads_by_name(subject.model).items() if name in layers)
    asked = "layer" in subject.options
    maps = list(layers) if heads <= HEADS or asked else []
    shown: list[tuple[Step, GenerationTrace]] = []
    assert isinstance(subject.preprocessing, PuzzlePreprocessing)
    room, never = NUMBERS, subject.preprocessing.never
    for step in wanted:
        written = trace_text(subject.model, step.before, step.tokens, never, looks=room > 0)
        if step.log_p is None:
            step.log_p = float(written.own().sum())
        room -= num_weights(written, maps)
        if not shown or room > 0:
            shown.append((step, written))
    shown.sort(key=lambda pair: (not pair[0].path, pair[0].number))
    why = "All steps can be opened."
    if len(shown) < len(steps):
        why = (
            f"{len(shown)} of {plural(len(steps), 'step')} can be opened: those of the answer, those that were kept, "
            "then those of the largest value; thought= selects another."
        )
    if not maps and heads:
        why += f" For {count(heads)} heads, the mean of each layer is shown; layer= shows the heads of one layer."
    return _OpenedSteps([step for step, _ in shown], [one for _, one in shown], maps, why)


def _summary(found: SearchResult, steps: list[Step], preprocessing: PuzzlePreprocessing, method: Method) -> str:
    """Return a summary of the search, its cost and result, and the mean values of right and wrong steps."""
    cost = f"for {plural(found.root.held.spent.tokens, 'token')}"
    how = {"tree": "A tree", "depth-first": "Depth first"}.get(method.method)
    if how is not None:
        words = [f"{how}: {plural(len(steps), 'step')}, {sum(step.kept for step in steps)} kept, {cost}."]
    else:
        chains = f"{plural(len(found.thoughts), 'chain')} by method={method.method}"
        words = [f"{chains}, with {plural(len(steps), 'step')}, {cost}."]
    words.append(verdict_text(found, preprocessing))
    wrong = sum(step.truth == "wrong" for step in steps)
    if wrong:
        words.append(f"{count(wrong)} of {plural(len(steps), 'step')} {'is' if wrong == 1 else 'are'} wrong.")
    good = [step.thought.value for step in steps if step.truth in ("open", "solved") and step.thought.value is not None]
    bad = [s.thought.value for s in steps if s.truth not in ("open", "solved") and s.thought.value is not None]
    if good and bad:
        words.append(
            f"The mean value of steps with a reachable solution is {number(sum(good) / len(good))}, of the "
            f"others {number(sum(bad) / len(bad))}."
        )
    return " ".join(words)


def verdict_text(found: SearchResult, preprocessing: PuzzlePreprocessing) -> str:
    """Return whether a solution was found and, if it is wrong, the first wrong step and the reason."""
    if found.best is None:
        return "No solution was finished."
    verdict = preprocessing.kind.judge(found.root.text, preprocessing.form, found.solution)
    if verdict.solved:
        return "Solved."
    where = f"step {verdict.wrong}: " if verdict.steps > 1 else ""
    return f"Not solved: {where}{verdict.why}." if verdict.why else "Not solved."


def _numbers(steps: list[Step]) -> Table:
    columns = {
        "step": "count",
        "after": "text",
        "text": "text",
        "value": "number",
        "log p": "number",
        "tries": "count",
        "kept": "text",
        "what is true": "text",
    }
    rows = [
        [
            step.number,
            "the problem" if step.parent is None else str(step.parent.number),
            step.text,
            step.thought.value if step.thought.value is not None else "",
            step.log_p,
            step.count,
            "answer" if step.path else "kept" if step.kept else "pruned",
            SAYS_OF[step.truth] + (f": {step.why}" if step.why else ""),
        ]
        for step in steps
    ]
    return table(columns, rows)
