"""Display names of metrics: one table for terminal and pages, from the keys of metrics.csv and evaluation.json."""

from __future__ import annotations

# The display name of each metric, and how its value is formatted.
METRICS = {
    "accuracy": ("accuracy", "fraction"),
    "balanced_accuracy": ("balanced accuracy", "fraction"),
    "top5_accuracy": ("top-5 accuracy", "fraction"),
    "calibration_error": ("expected calibration error", "fraction"),
    "knn_accuracy": ("kNN accuracy", "fraction"),
    "average_accuracy": ("average accuracy", "fraction"),
    "forgetting": ("forgetting", "fraction"),
    "backward_transfer": ("backward transfer", "fraction"),
    "macro_f1": ("macro F1", "fraction"),
    "rmse": ("RMSE", "number"),
    "mse": ("MSE", "number"),
    "mae": ("MAE", "number"),
    "r2": ("R²", "number"),
    "mase": ("MASE", "number"),
    "token_error": ("token error rate", "fraction"),
    "word_error": ("word error rate", "fraction"),
    "character_error": ("character error rate", "fraction"),
    "bleu": ("BLEU", "number"),
    "rouge_1": ("ROUGE-1", "number"),
    "rouge_2": ("ROUGE-2", "number"),
    "rouge_l": ("ROUGE-L", "number"),
    "sequence_error": ("sequence error rate", "fraction"),
    "solved": ("solved", "fraction"),
    "answer_accuracy": ("answer accuracy", "fraction"),
    "token_accuracy": ("token accuracy", "fraction"),
    "exact_match": ("exact match", "fraction"),
    "span_precision": ("span precision", "fraction"),
    "span_recall": ("span recall", "fraction"),
    "span_f1": ("span F1", "fraction"),
    "mean_iou": ("mean IoU", "fraction"),
    "pixel_accuracy": ("pixel accuracy", "fraction"),
    "bits_per_token": ("bits a token", "number"),
    "bits_per_dimension": ("bits per dimension", "number"),
    "kl": ("KL divergence", "number"),
    "auc": ("AUC", "fraction"),
    "average_precision": ("average precision", "fraction"),
    "mrr": ("mean reciprocal rank", "fraction"),
    "map": ("mAP@[.5:.95]", "fraction"),
    "map_50": ("mAP@.5", "fraction"),
    "map_75": ("mAP@.75", "fraction"),
}


def metric(key: str) -> tuple[str, str]:
    """Return the name and the format of a metric: `metric("macro_f1")` is ("macro F1", "fraction")."""
    return METRICS.get(key, (key.replace("_", " "), "number"))


def column_name(key: str) -> str:
    """Return the name of a column of metrics.csv: `column_name("val_mean_iou")` is "val mean IoU"."""
    split, _, name = key.partition("_")
    if key == "lr":
        return "learning rate"
    return f"{split} {metric(name)[0]}" if split in ("train", "val", "test") and name else metric(key)[0]
