"""A tree of thoughts over many puzzles at once, its branches on one cache, beside the same search one branch at a time.

python -m benchmarks thoughts

The network is trained for a minute on the game of 24, so that its lines are lines. Both peers run the same search
(breadth 5, 8 tries after each thought, depth 3): one writes each try by itself, from the beginning of the text, with
our `generate`; the other with transformers' `generate` on the same weights, 8 sequences a call. Values are asked one by
one, of the whole text. They take fewer puzzles, and times are for a puzzle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import cutaway
from cutaway.data.datasets.pairs import generate_games
from cutaway.data.text.puzzles import END, PuzzlePreprocessing, SearchablePuzzle
from cutaway.inference.language_model_thinker import LINE, solution_form, think
from cutaway.inference.text import generate
from cutaway.inference.thought_search import Method, Thought, search

from .attention import theirs
from .pairs import Pair, race

TREE = Method("tree", breadth=5, proposals=8, depth=3)
TOGETHER, ALONE = 100, 2  # puzzles
ROOM = 13  # tokens of a line, at most
SETTINGS: dict[str, Any] = {
    "form": "steps,tree", "model.dim": 128, "model.layers": 4, "model.heads": 4, "model.dropout": 0.0,
    "batch_size": 64, "max_steps": 300, "lr": 2e-3,
}  # fmt: skip
Draw = Callable[[Tensor, int], Tensor]  # tokens (T,) and how many at most to 8 ways to go on, (8, T')


class Apart:
    """The same thinker without anything shared: each question is a text that is read from its beginning."""

    def __init__(self, model: nn.Module, preprocessing: PuzzlePreprocessing, draw: Draw) -> None:
        self.model, self.preprocessing, self.draw = model, preprocessing, draw
        assert isinstance(preprocessing.kind, SearchablePuzzle)
        self.kind, self.line = preprocessing.kind, preprocessing.ids[LINE]
        self.values = [preprocessing.ids[token] for token in (self.kind.sure, self.kind.impossible)]

    def propose(self, thoughts: Sequence[Thought], count: int, whole: bool = False) -> list[list[Thought]]:
        """Different lines out of `count` tries after each."""
        found = []
        for thought in thoughts:
            lines: dict[tuple[int, ...], Thought] = {}
            for row in self.draw(self._text(thought), count).tolist():
                end = next((k + 1 for k, token in enumerate(row) if token in (self.line, END)), len(row))
                ids = tuple(row[:end])
                text = self.preprocessing.words(ids)
                lines.setdefault(ids, Thought(text, thought, held=(*ids,)))
            found.append([*lines.values()])
        return found

    def value(self, thoughts: Sequence[Thought]) -> list[float]:
        """The probability of `sure`, of one whole text after another."""
        question = torch.tensor([self.preprocessing.ids[self.kind.question]])
        found = []
        with torch.no_grad():
            for thought in thoughts:
                logits = self.model(torch.cat([self._text(thought)[:-1], question])[None])[0, -1]
                found.append(float(logits[self.values].softmax(0)[0]))
        return found

    def finish(self, thought: Thought) -> str | None:
        """The text, where the solution was ended, or no step can follow."""
        if thought.parent is None or not (thought.held[-1:] == (END,) or self.kind.ended(thought.text)):
            return None
        return thought.solution()

    def _text(self, thought: Thought) -> Tensor:
        """All tokens up to the end of a thought, (T,)."""
        root = thought
        while root.parent is not None:
            root = root.parent
        ids = self.preprocessing.encode(self.preprocessing.kind.ask(root.text, self.preprocessing.form))
        return torch.tensor([*ids, *(i for t in thought.path() for i in t.held)])


def rows(runs: int = 3) -> list[tuple[Pair, float]]:
    """Beside both peers, in seconds for a puzzle."""
    with tempfile.TemporaryDirectory() as folder:
        run = cutaway.train("gpt2", "game24", out=Path(folder) / "run", **SETTINGS)
        model, preprocessing = run.model, run.preprocessing
    assert isinstance(preprocessing, PuzzlePreprocessing)
    tree = preprocessing.in_form(solution_form(preprocessing, TREE))
    problems, peer = generate_games()["test"], theirs("gpt2", model)
    ends = [END, tree.ids[LINE]]

    def together() -> None:
        think(model, preprocessing, problems[:TOGETHER], TREE)

    def ours(prompt: Tensor, count: int) -> Tensor:
        drawing = {"temperature": 0.7, "never": tree.never, "ends": ends}
        return pad_sequence([generate(model, prompt[None], ROOM, **drawing)[0] for _ in range(count)], batch_first=True)

    def transformers(prompt: Tensor, count: int) -> Tensor:
        drawing = {"do_sample": True, "temperature": 0.7, "top_k": 0, "suppress_tokens": tree.never}
        room = {"max_new_tokens": ROOM, "eos_token_id": ends, "pad_token_id": 0}
        mask = torch.ones(1, len(prompt), dtype=torch.int64)
        found: Tensor = peer.generate(prompt[None], attention_mask=mask, num_return_sequences=count, **drawing, **room)
        return found[:, len(prompt) :]

    found = []
    for name, draw in (("our generate, try by try", ours), ("transformers' generate, 8 tries a call", transformers)):

        def one_by_one(draw: Draw = draw) -> None:
            for problem in problems[:ALONE]:
                search(Apart(model, tree, draw), [Thought(problem)], TREE)

        pair = race(f"tree of thoughts, b=5, one puzzle, vs. {name}", together, one_by_one, runs, warm_up=1)
        scale = ALONE / TOGETHER
        each = replace(pair, ours=pair.ours / TOGETHER, peer=pair.peer / ALONE)
        found.append((replace(each, ratio=pair.ratio * scale, low=pair.low * scale, high=pair.high * scale), 0.2))
    return found
