"""A problem solved in writing: the proposed steps, and the network's attention and probabilities at each.

The search is drawn as a tree, or as chains by lines. The value of a step is the model's estimate. Whether the step is
right, and whether a solution can still follow, is computed.

The probabilities and attention weights of a token are read at the position that predicted it, which is that of the
previous token. In a tree of thoughts, each line of a text is traced on its own with all of the text before it.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.config import parse
from ..core.errors import SettingError
from ..data.text.puzzles import END, PuzzlePreprocessing, PuzzleSplit, SearchablePuzzle
from ..draw import charts
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, number, plural
from ..inference.language_model_thinker import (
    LINE,
    next_token_log_probabilities,
    solution_form,
    think,
    thought_tokens,
)
from ..inference.thought_search import CHAINS, Method, SearchResult, Thought
from ..nn.modules import eval_mode
from ..runs.predict import reject_method
from .attention_capture import AttentionCapture, capture_attention, num_heads_by_name
from .json_values import thousandths
from .subject import Subject, parse_choice, parse_index

LIKELIEST, LEAST = 8, 0.001  # most next tokens at each position, and the least probability of one


@dataclass(frozen=True)
class GenerationTrace:
    """A trace of L generated tokens after S − L + 1 other tokens."""

    before: list[int]
    tokens: list[int]
    log_p: Tensor  # (L, V): log probabilities of the vocabulary at each position
    looks: dict[str, Tensor]  # name of a layer → its heads' weights on all tokens but the last, (h, L, S)

    def own(self) -> Tensor:
        """Return log p of the generated tokens, (L,)."""
        return self.log_p.gather(1, torch.tensor(self.tokens)[:, None])[:, 0]


def trace_text(
    model: nn.Module, before: list[int], tokens: list[int], preprocessing: PuzzlePreprocessing, *, looks: bool = True
) -> GenerationTrace:
    """Trace the text in one forward pass, which equals generating it token by token.

    The preprocessing is in the form of the solutions.
    """
    device = next(model.parameters()).device
    ids = torch.tensor([[*before, *tokens[:-1]]], device=device)  # (1, S)
    inputs = (ids, torch.ones_like(ids, dtype=torch.bool))
    rows = slice(len(before) - 1, None)

    def see(look: AttentionCapture) -> tuple[str, Tensor]:
        return look.name, torch.stack([look.weights(h)[rows] for h in range(look.heads)]).cpu()  # (h, L, S)

    with torch.no_grad(), eval_mode(model):
        logits = model(*inputs)[0, rows].cpu()  # (L, V)
    log_p = next_token_log_probabilities(logits, preprocessing)
    return GenerationTrace(before, tokens, log_p, dict(capture_attention(model, inputs, see)) if looks else {})


def trace_drawing(written: GenerationTrace, names: Sequence[str], maps: Sequence[str], title: str) -> Drawing:
    """Return the tokens of a trace, shaded by their probability, with attention maps and the most probable next tokens.

    `names` are the names of all tokens. `maps` are the layers whose heads are shown separately; the other layers show
    the mean of their heads.
    """
    own = written.own().exp()
    likely = []
    for p, token in zip(written.log_p.exp(), written.tokens):
        best = [i for i in p.topk(min(LIKELIEST, len(names))).indices.tolist() if p[i] >= LEAST]
        shown = best if token in best else [*best[: LIKELIEST - 1], token]
        likely.append([[names[i], float(f"{p[i]:.3g}")] for i in shown])
    return {
        "kind": "tokens",
        "title": title,
        "scale": "amount",
        "items": [
            _item("Context", [names[i] for i in (*written.before, *written.tokens[:-1])], []),
            _item("Generated tokens", [names[i] for i in written.tokens], [round(p, 4) for p in own.tolist()]),
        ],
        "maps": [{"name": name, "weights": _mask_future(weights)} for name, weights in _attention_maps(written, maps)],
        "query": 0,
        "likely": likely,
    }


def num_weights(written: GenerationTrace, maps: Sequence[str]) -> int:
    """Return the number of attention weights in the drawing."""
    return sum(weights.numel() for _, weights in _attention_maps(written, maps))


def _attention_maps(written: GenerationTrace, whole: Sequence[str]) -> list[tuple[str, Tensor]]:
    """Return attention weights (L, S) by name: the mean of all heads, and for each layer its heads or their mean."""
    if not written.looks:
        return []
    found = [("mean of all heads", torch.cat(list(written.looks.values())).mean(0))]
    for name, heads in written.looks.items():
        if name in whole:
            found += [(f"{name}, head {h}" if len(heads) > 1 else name, weights) for h, weights in enumerate(heads)]
        elif len(heads) > 1:
            found.append((f"{name}, mean of {len(heads)} heads", heads.mean(0)))
        else:
            found.append((name, heads[0]))
    return found if len(found) > 2 else found[1:]


def _mask_future(weights: Tensor) -> list[list[float | None]]:
    """Return weights (L, S) as rows, with None for tokens that were not written yet."""
    first = weights.shape[1] - len(weights) + 1  # tokens before the first row
    return [[*row[: first + k], *[None] * (len(row) - first - k)] for k, row in enumerate(thousandths(weights))]


def _item(label: str, tokens: list[str], values: list[float]) -> dict[str, Any]:
    return {"label": label, "tokens": tokens, "values": values, "warning": None}


CHAINS_SHOWN = 24
SAYS_OF = {  # the possible states of a step, each with a sign in the drawing
    "solved": "solves the problem",
    "open": "correct, a solution is still reachable",
    "dead": "correct, but no solution is reachable",
    "wrong": "wrong",
    "after": "correct in isolation, after a wrong step",
}
THOUGHT = "thought"  # label of the selection


@dataclass(eq=False)
class Step:
    """One line of a solution: a thought of a tree, or a line of a chain."""

    number: int  # from 1, in the order of the search
    text: str
    parent: Step | None
    before: list[int]  # tokens of the question and of all steps before it
    tokens: list[int]  # of the step, including the token that ended the solution
    thought: Thought  # the thought of the step, or the chain that it is a line of
    born: int  # the iteration of the search that proposed it, starting at 1
    log_p: float | None = None  # of its tokens; None for a line of a chain until it is computed
    truth: str = ""  # one of SAYS_OF
    why: str = ""  # the reason if it is wrong
    path: bool = False  # whether it is a step of the answer

    @property
    def depth(self) -> int:
        """Return the depth of the step, starting at 1."""
        return 1 if self.parent is None else self.parent.depth + 1

    @property
    def kept(self) -> bool:
        """Return whether the search expanded the step, or it belongs to the answer."""
        return self.thought.kept

    @property
    def count(self) -> int:
        """Return the number of samples that led to the step."""
        return int(getattr(self.thought.held, "count", 1))

    @property
    def name(self) -> str:
        """Return the label of the step in a selection."""
        return f"{self.number}: {self.text or '(the end)'}"


def search_steps(found: SearchResult, preprocessing: PuzzlePreprocessing, method: Method) -> list[Step]:
    """Return all proposed steps with their correctness, in the order of the search."""
    asked = preprocessing.encode(preprocessing.kind.ask(found.root.text, preprocessing.form))
    grown = _chain_steps if method.method in CHAINS else _tree_steps
    steps = grown(found, preprocessing, asked)
    moments: list[object] = []
    for step in steps:
        if method.method == "depth-first":
            moments += [] if moments and moments[-1] is step.parent else [step.parent]  # the step that was expanded
            step.born = len(moments)
        _judge(step, found.root.text, preprocessing)
    return steps


def _tree_steps(found: SearchResult, preprocessing: PuzzlePreprocessing, asked: list[int]) -> list[Step]:
    """Return the steps of a tree, one for each thought."""
    steps: dict[int, Step] = {}
    answer = found.best.path() if found.best is not None else []
    for thought in found.thoughts:
        parent = steps.get(id(thought.parent))
        before = asked if parent is None else [*parent.before, *parent.tokens]
        step = Step(
            len(steps) + 1, thought.text.strip(), parent, before, thought_tokens(thought, preprocessing), thought, 1
        )
        step.born, step.log_p, step.path = step.depth, thought.log_p, any(thought is one for one in answer)
        steps[id(thought)] = step
    return list(steps.values())


def _chain_steps(found: SearchResult, preprocessing: PuzzlePreprocessing, asked: list[int]) -> list[Step]:
    """Return the steps of chains, the selected chain first, then those sampled most often."""
    chains = sorted(found.thoughts, key=lambda t: (t is not found.best, -t.held.count, -t.log_p))[:CHAINS_SHOWN]
    steps: list[Step] = []
    end = preprocessing.ids.get(LINE)
    for chain in chains:
        tokens, parent, before = thought_tokens(chain, preprocessing), None, asked
        cuts = [k + 1 for k, token in enumerate(tokens) if token == end]
        for start, stop in zip([0, *cuts], [*cuts, len(tokens)]):
            if own := tokens[start:stop]:
                text = preprocessing.words(own).strip()
                parent = Step(len(steps) + 1, text, parent, before, own, chain, 1, path=chain is found.best)
                steps.append(parent)
                before = [*before, *own]
    return steps


def _judge(step: Step, problem: str, preprocessing: PuzzlePreprocessing) -> None:
    """Set the correctness of a step: of the step itself if it can be judged alone, or of its whole solution."""
    kind = preprocessing.kind
    written = preprocessing.words([*step.before, *step.tokens][_question_length(step) :])
    if isinstance(kind, SearchablePuzzle) and preprocessing.form in kind.stepwise:
        last = step.tokens[-1] == END or (preprocessing.form == kind.tree and kind.ended(step.text))
        if not step.text and not last:
            step.truth, step.why = "wrong", "the line is empty"
            return
        found = kind.so_far(problem, written)
        step.why = found.last
        step.truth = "wrong" if found.last else "after" if found.why else "open" if found.leads else "dead"
        if not last or found.why:
            return
    verdict = kind.judge(problem, preprocessing.form, written)
    step.truth, step.why = ("solved" if verdict.solved else "wrong"), verdict.why


def _question_length(step: Step) -> int:
    """Return the number of tokens of the question."""
    while step.parent is not None:
        step = step.parent
    return len(step.before)


def steps_drawing(
    found: SearchResult, steps: Sequence[Step], method: Method, options: Sequence[Step] = (), first: Step | None = None
) -> Drawing:
    """Return the steps in columns by depth.

    The steps of `options` can be opened, and the `first` of them is open; a selection of thoughts refers to them by
    name.
    """
    places = _column_positions(steps, method)
    opens = {id(step) for step in options}
    numbers = {id(step): k for k, step in enumerate(steps)}
    nodes = [
        {
            "text": step.text or "(the end)",
            "name": step.name,
            "parent": None if step.parent is None else numbers[id(step.parent)],
            "depth": step.depth,
            "place": places[id(step)],
            "born": step.born,
            "value": None if step.thought.value is None else round(step.thought.value, 4),
            "log_p": None if step.log_p is None else round(step.log_p, 3),
            "count": step.count,
            "kept": step.kept,
            "path": step.path,
            "truth": step.truth,
            "why": step.why,
            "opens": id(step) in opens,
        }
        for step in steps
    ]
    tree = method.method not in CHAINS
    return {
        "kind": "thoughts",
        "title": "Search tree" if tree else plural(len({id(s.thought) for s in steps}), "chain"),
        "question": found.root.text,
        "nodes": nodes,
        "kept": "kept" if tree else "chosen",
        "pruned": "pruned" if tree else "not chosen",
        "moment": "depth" if method.method == "tree" else "expansion",
        "says": {truth: says for truth, says in SAYS_OF.items() if any(step.truth == truth for step in steps)},
        "label": THOUGHT,
        "chosen": first.name if first is not None else None,
    }


def _column_positions(steps: Sequence[Step], method: Method) -> dict[int, int]:
    """Return the position of each step in its column, from the top.

    Chains are side by side. In a tree that keeps the best thoughts of each depth, these come first, by value. In other
    trees, the children of a parent are together.
    """
    places: dict[int, int] = {}
    for depth in sorted({step.depth for step in steps}):
        column = [step for step in steps if step.depth == depth]
        if method.method in CHAINS and depth > 1:
            places |= {id(step): places[id(step.parent)] for step in column}
            continue
        if method.method == "tree":
            column.sort(key=lambda s: (not s.kept, not s.path, -(s.thought.value or 0.0)))
        elif method.method == "depth-first":
            column.sort(key=lambda s: (places.get(id(s.parent), 0), not s.path, -(s.thought.value or 0.0)))
        places |= {id(step): k for k, step in enumerate(column)}
    return places


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


def draw_thoughts(subject: Subject) -> View:
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
    opened = _select_steps(subject, preprocessing, steps, start, [layer] if layer else layers)
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
            step.log_p = float(trace_text(model, step.before, step.tokens, preprocessing, looks=False).own().sum())
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


def _select_steps(
    subject: Subject,
    preprocessing: PuzzlePreprocessing,
    steps: list[Step],
    start: int | None,
    layers: Sequence[str],
) -> _OpenedSteps:
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
    room = NUMBERS
    for step in wanted:
        written = trace_text(subject.model, step.before, step.tokens, preprocessing, looks=room > 0)
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
    """Return a table of the proposed steps."""
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
