"""Problem solving: the loss of the solution's tokens, and the fraction of problems that are solved.

The model generates a solution, which is verified by computation (`data.problems`). A problem is solved if every step
and the answer are correct. An answer can be correct after wrong steps. This is counted separately, because it shows
chains of steps that only resemble reasoning.
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
from ..data.problems import Verdict
from ..statistics.intervals import Metric, mean, proportion, ratio, share
from .language import TokenLoss

# Stored columns of an example. With a generated solution there are more: the tokens that the model processed for it,
# its verdict, and its ids.
NLL, TOKENS, RIGHT, SPENT, SOLVED, ANSWERED, STEPS, WRONG = range(8)
WRITTEN = slice(WRONG + 1, None)
NONE = -1  # padding after the end of a solution


class ProblemSolving(TokenLoss):
    """Cross-entropy of the solution's tokens; the fraction of solved problems."""

    NOUN = "the solution of a problem"
    name = "problem solving"
    default_monitor = "loss"
    headline = "solved"
    monitors: tuple[str, ...] = ("loss", "token_accuracy")
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("label_smoothing", "words")

    def __init__(
        self, target: Solution, label_smoothing: float = 0.0, words: Callable[[list[int]], str] | None = None
    ) -> None:
        """Create the task. `words` converts ids to text."""
        self.target, self.label_smoothing = target, label_smoothing
        self.words = words or (lambda ids: " ".join(map(str, ids)))

    def summarize_outputs(
        self,
        outputs: Tensor,
        target: Tensor,
        written: Tensor | None = None,
        spent: Tensor | None = None,
        verdicts: list[Verdict] | None = None,
    ) -> Tensor:
        """Return what evaluation stores of each example, (N, 3), or (N, 8 + L) with `written` solutions (N, L)."""
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

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return the loss in nats per token, and the token accuracy."""
        del target
        nll, tokens, right = kept[:, :SPENT].double().sum(0).tolist()
        return {"loss": nll / max(tokens, 1), "token_accuracy": right / max(tokens, 1)}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the metrics of generated solutions, and loss and accuracy of the given solutions' tokens.

        For generated solutions these are the fraction of solved problems, the fraction of correct answers, and the
        tokens per problem. The units of intervals are problems.
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
        """Return the position of the first wrong step: {step: count}, and the number of correct answers after a wrong
        step.
        """
        del target
        if kept.shape[1] <= SPENT:
            return {}
        steps = Counter(int(row[WRONG]) for row in kept if not row[SOLVED])
        lucky = int(((kept[:, ANSWERED] == 1) & (kept[:, SOLVED] == 0)).sum())
        return {"first_wrong_step": {str(k): steps[k] for k in sorted(steps)}, "right_answers_by_wrong_steps": lucky}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the fraction of problems that the most frequent training solution solves."""
        solutions, actual = ([tuple(row[row != IGNORED].tolist()) for row in of] for of in (train_target, target))
        commonest = Counter(solutions).most_common(1)[0][0]
        value = sum(one == commonest for one in actual) / len(actual)
        return {"name": "most-frequent-solution baseline", "value": value}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the generated solution, and whether it is correct."""
        return [
            {self.target.column: text, "solved": bool(row[SOLVED]), "first wrong step": int(row[WRONG]) or None}
            for row, text in zip(kept, self._texts(kept))
        ]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the generated solution and the given one; the loss is per token of the given one."""
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
        """Return the generated texts; batches may be padded with NaN."""
        return [self.words([int(i) for i in row if i >= 0]) for row in kept[:, WRITTEN].tolist()]
