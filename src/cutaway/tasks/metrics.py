"""Which metrics are better when higher."""

from __future__ import annotations

# Metrics of which more is better; of all others, losses and errors, less is.
HIGHER_IS_BETTER = frozenset(
    (
        *("accuracy", "balanced_accuracy", "top5_accuracy", "macro_f1", "span_f1", "span_precision", "span_recall"),
        *("knn_accuracy", "r2", "bleu"),
        *("average_accuracy", "backward_transfer"),
        *("mean_iou", "pixel_accuracy"),
        *("map", "map_50", "map_75"),
        *("auc", "average_precision", "mrr"),
        *("exact_match", "solved", "answer_accuracy", "token_accuracy"),
    )
)
