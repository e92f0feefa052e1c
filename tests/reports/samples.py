"""Small documents of runs, as `cutaway train` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# A grey PNG of 2×2 pixels.
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADElEQVR4nGNoYGgAAAGEAQFvS5BdAAAAAElFTkSuQmCC"
)
METRICS = """epoch,step,lr,train_loss,val_loss,val_accuracy,gradient_norm,seconds
1,17,0.001,2.25,1.5,0.5,3.1,0.5
2,34,0.002,0.75,nan,0.875,2.2,1.0
3,51,0.001,0.0625,0.125,0.9375,,1.5
"""


def run(kind: str = "image") -> dict[str, Any]:
    """run.json of a finished run."""
    return {
        "cutaway": "0.1.0",
        "status": "finished",
        "model": "lenet5-modern",
        "data": {
            "source": "digits",
            "name": "digits",
            "kind": kind,
            "fingerprint": "9f" * 32,
            "split_hash": "07" * 32,
            "splits": {"train": 1077, "val": 360, "test": 360},
            "notes": ["Images of 8×8 were enlarged."],
            "columns": [],
            "licence": "CC BY 4.0",
        },
        "task": "classification",
        "loss": "cross_entropy",
        "model_settings": {"num_classes": 3},
        "settings": {"epochs": 3, "lr": 0.002, "target": None, "milestones": [0.5, 0.75], "tensorboard": True},
        "seed": 7,
        "command": "cutaway train lenet5-modern digits epochs=3",
        "parameters": 61706,
        "versions": {"cutaway": "0.1.0", "python": "3.11.2", "torch": "2.13.0"},
        "machine": {"device": "cpu", "cpu": "x86_64", "threads": 2, "platform": "Linux"},
        "started": "2026-01-31T14:05:00+00:00",
        "finished": "2026-01-31T14:05:12+00:00",
        "seconds": 12.3,
        "epochs_done": 3,
        "stopped": "all epochs are done",
        "best": {"epoch": 3, "metric": "accuracy", "value": 0.9375},
        "resumed": 0,
        "summary": None,
    }


def interval(value: float | None, half: float = 0.05) -> dict[str, float | None]:
    """A figure with an interval, as shares have it."""
    if value is None:
        return {"value": None, "low": None, "high": None}
    return {"value": value, "low": max(0.0, value - half), "high": min(1.0, value + half)}


def classification(names: tuple[str, str, str] = ("cat", "dog", "owl")) -> dict[str, Any]:
    """evaluation.json of three classes, the last of which has no example."""
    cat, dog, owl = names
    return {
        "split": "test",
        "count": 40,
        "watch": "accuracy",
        "metrics": {
            "accuracy": {"value": 0.9, "low": 0.77, "high": 0.96},
            "macro_f1": interval(0.89),
            "loss": interval(0.4),
        },
        "classes": {
            "names": list(names),
            "confusion": [[18, 2, 0], [1, 18, 1], [0, 0, 0]],
            "per_class": [
                {"name": cat, "count": 20, "precision": interval(0.9), "recall": interval(0.9), "f1": interval(0.9)},
                {"name": dog, "count": 20, "precision": interval(0.9), "recall": interval(0.85), "f1": interval(0.87)},
                {"name": owl, "count": 0, "precision": interval(0.0), "recall": interval(None), "f1": interval(None)},
            ],
        },
        "baseline": {"name": f"majority-class baseline ('{cat}')", "value": 0.5},
        "worst": [
            {
                "name": "a/1.png",
                "actual": cat,
                "predicted": dog,
                "confidence": 0.99,
                "loss": 4.6,
                "picture": PICTURE,
                "row": None,
            },
            {
                "name": "a/2.png",
                "actual": dog,
                "predicted": owl,
                "confidence": 0.6,
                "loss": 2.1,
                "picture": PICTURE,
                "row": None,
            },
        ],
    }


def regression() -> dict[str, Any]:
    """evaluation.json of a number; a column of the data is called as one of the table's own."""
    actual, predicted = [100.0, 100, 100, 100, 100, 100], [110.0, 90, 100, 130, 80, 100]
    worst = {"name": "row 5", "actual": "100", "predicted": "130.123", "confidence": None, "loss": 9.0, "picture": None}
    return {
        "split": "test",
        "count": 6,
        "watch": "rmse",
        "metrics": {
            "rmse": {"value": 17.32, "low": 9.5, "high": 25.1},
            "r2": {"value": 0.5, "low": -0.2, "high": 0.8},
        },
        "values": {"column": "price", "predicted": predicted, "actual": actual},
        "baseline": {"name": "mean baseline (100)", "value": 20.0},
        "worst": [worst | {"row": {"rooms": "3", "loss": "none"}}],
    }


def layers() -> dict[str, Any]:
    """layers.json with a layer whose MACs are unknown."""
    rows = [("c1", "Conv2d", [6, 28, 28], 156, 117600, 5), ("mix", "Mixer", [84], 0, None, None)]
    keys = ("name", "type", "shape", "parameters", "multiply_adds", "receptive_field")
    return {
        "input": [1, 32, 32],
        "rows": [dict(zip(keys, row)) for row in rows],
        "parameters": 156,
        "multiply_adds": 117600,
        "complete": False,
        "card": {
            "title": "Gradient-based learning",
            "authors": "Y. LeCun",
            "year": 1998,
            "link": "https://doi.org/10.1109/5.726791",
            "equation": "a = ReLU(W ∗ x + b)",
            "divergences": [{"what": "activation", "paper": "tanh", "here": "ReLU", "common": ""}],
        },
    }


def write(folder: Path, evaluation: dict[str, Any] | None = None, kind: str = "image", whole: bool = True) -> Path:
    """A run's folder with those documents; without metrics and layers where it is not `whole`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(run(kind)), encoding="utf-8")
    if evaluation is not None:
        (folder / "evaluation.json").write_text(json.dumps(evaluation), encoding="utf-8")
    if whole:
        (folder / "metrics.csv").write_text(METRICS, encoding="utf-8")
        (folder / "layers.json").write_text(json.dumps(layers()), encoding="utf-8")
    return folder
