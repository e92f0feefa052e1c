"""The steps of a search over thoughts with their correctness: a tree, or chains by lines, and its drawing.

The value of a step is the model's estimate. Whether the step is right, and whether a solution can still follow, is
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..data.text.puzzles import END, PuzzlePreprocessing, SearchablePuzzle
from ..draw.description import Drawing
from ..draw.number_format import plural
from ..inference.language_model_thinker import LINE, thought_tokens
from ..inference.thought_search import CHAINS, Method, SearchResult, Thought

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
