"""Problems solved in writing: the loss is that of the solution's tokens, the score how many problems are solved.

A solution is written by the model and judged by computing (`data.problems`): it is solved where every step is right and
so is the answer. An answer can be right by wrong steps: that is counted beside it, and is what a chain of steps that
only looks like reasoning shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Solution
from ..data.dataset_base import IGNORED
from ..data.problems.problem import Verdict
from ..statistics.intervals import Metric, mean, proportion, ratio, share
from .language import TokenLoss

# The columns of what evaluation keeps of an example; where a solution was written, there are more: the tokens that the
# model read and wrote for it, what is true of it, and the ids.
NLL, TOKENS, RIGHT, SPENT, SOLVED, ANSWERED, STEPS, WRONG = range(8)
WRITTEN = slice(WRONG + 1, None)
NONE = -1  # after the end of what was written


class ProblemSolving(TokenLoss):
    """Cross-entropy of the solution's tokens; the fraction of problems that are solved."""

    NOUN = "the solution of a problem"
    name = "problem solving"
    watch = "loss"
    headline = "solved"
    monitors: tuple[str, ...] = ("loss", "token_accuracy")
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing", "words")

    def __init__(
        self, target: Solution, label_smoothing: float = 0.0, words: Callable[[list[int]], str] | None = None
    ) -> None:
        """`words` writes ids as text."""
        self.target, self.label_smoothing = target, label_smoothing
        self.words = words or (lambda ids: " ".join(map(str, ids)))

    def keep(
        self,
        outputs: Tensor,
        target: Tensor,
        written: Tensor | None = None,
        spent: Tensor | None = None,
        verdicts: list[Verdict] | None = None,
    ) -> Tensor:
        """What evaluation stores of each example, (N, 3), and where its solution was `written` (N, L), (N, 8 + L)."""
        if not target.numel():
            target = torch.full(outputs.shape[:2], IGNORED, device=outputs.device)  # (N, T)
        nll = F.cross_entropy(outputs.transpose(1, 2), target, ignore_index=IGNORED, reduction="none")  # (N, T)
        real = target != IGNORED
        kept = [nll.double().sum(1), real.sum(1), (outputs.argmax(2) == target).sum(1)]
        if written is None or spent is None or verdicts is None:
            return torch.stack([column.double() for column in kept], 1)
        said = [(v.solved, v.right, v.steps, v.wrong or 0) for v in verdicts]
        kept += [spent, *torch.tensor(said, dtype=torch.float64).to(nll.device).unbind(1)]
        return torch.cat([torch.stack([column.double() for column in kept], 1), written.double()], 1)

    def quick(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Loss in nats a token, and how many tokens are the likeliest."""
        del target
        nll, tokens, right = kept[:, :SPENT].double().sum(0).tolist()
        return {"loss": nll / max(tokens, 1), "token_accuracy": right / max(tokens, 1)}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Where solutions were written, how many problems are solved, how many answers are right by whatever steps, and
        the tokens that it took for a problem; loss and accuracy of the given solutions' tokens.

        The units of intervals are problems.
        """
        del target
        columns = kept[:, : WRITTEN.start].double().cpu().numpy()
        found = {}
        if len(columns.T) > SPENT:
            found["solved"] = proportion(float(columns[:, SOLVED].sum()), len(columns))
            found["answer_accuracy"] = proportion(float(columns[:, ANSWERED].sum()), len(columns))
            found["tokens_per_problem"] = mean(columns[:, SPENT], noun="problem")
        if columns[:, TOKENS].all():
            found["loss"] = ratio(columns[:, NLL], columns[:, TOKENS], "problem")
            found["token_accuracy"] = share(columns[:, RIGHT], columns[:, TOKENS], "problem")
        return found

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Where the first wrong step is, of solutions that are not right: {step: how many}, and how many right answers
        stand after a wrong step."""
        del target
        if kept.shape[1] <= SPENT:
            return {}
        steps = Counter(int(row[WRONG]) for row in kept if not row[SOLVED])
        lucky = int(((kept[:, ANSWERED] == 1) & (kept[:, SOLVED] == 0)).sum())
        return {"first_wrong_step": {str(k): steps[k] for k in sorted(steps)}, "right_answers_by_wrong_steps": lucky}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """How many problems are solved by always writing the solution that most problems of training have."""
        solutions, actual = ([tuple(row[row != IGNORED].tolist()) for row in of] for of in (train_target, target))
        commonest = Counter(solutions).most_common(1)[0][0]
        value = sum(one == commonest for one in actual) / len(actual)
        return {"name": "always the commonest solution of training", "value": value}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """What was written, and whether it is right."""
        return [
            {self.target.column: text, "solved": bool(row[SOLVED]), "first wrong step": int(row[WRONG]) or None}
            for row, text in zip(kept, self._texts(kept))
        ]

    def mistakes(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """What was written; loss is for each token of the given solution, whose text is the actual."""
        texts = self._texts(kept) if kept.shape[1] > SPENT else [""] * len(kept)
        actual = [self.words(row[row != IGNORED].tolist()) for row in target]
        return [
            {
                "actual": right,
                "predicted": text,
                "confidence": None,
                "loss": row[NLL].item() / max(row[TOKENS].item(), 1),
                "wrong": kept.shape[1] > SPENT and not bool(row[SOLVED]),
            }
            for row, text, right in zip(kept, texts, actual)
        ]

    def _texts(self, kept: Tensor) -> list[str]:
        """What was written; batches were padded with NaN to be put together."""
        return [self.words([int(i) for i in row if i >= 0]) for row in kept[:, WRITTEN].tolist()]
