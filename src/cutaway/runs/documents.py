"""Contents of a run's documents run.json and evaluation.json, as plain values."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..checkpoints.custom import CustomPreset
from ..core.config import shell_command
from ..core.version import __version__
from ..data.dataset_base import IN_MEMORY
from ..data.datasets.registry import NAMED
from ..data.modalities import KINDS
from ..tasks.classification import linearly_separable
from ..tasks.contrastive import Contrastive
from ..tasks.task import headline_metric
from ..training import evaluation_examples
from ..training.callbacks import CONVERGED
from ..training.checkpoint import TrainingState
from ..training.device import cpu_capability
from ..training.evaluation import SplitOutputs, evaluate_split, evaluation_batch_size
from ..training.setup import TrainingSetup
from ..training.task_schedule import evaluate_tasks

MAX_SEPARABILITY_NUMBERS = 100_000  # numbers in the training split; a linear programme on more takes minutes


def run_document(ready: TrainingSetup, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json at the start of training: everything needed to repeat the run."""
    data, spec = ready.data, ready.data.spec
    return {
        "cutaway": __version__,
        "model": ready.preset.name,
        "own": ready.preset.path if isinstance(ready.preset, CustomPreset) else None,
        "data": {
            "source": data.source,
            "path": absolute_source(data.source),
            "name": data.name,
            "kind": spec.kind,
            "fingerprint": data.fingerprint,
            "split_hash": data.split_hash,
            "splits": {k: len(p) for k, p in data.splits.items()},
            "notes": data.notes,
            "findings": data.findings,  # notes on problems of the data
            "evidence": data.evidence,
            "columns": data.columns,
            "distributions": data.distributions(),
            "licence": data.licence,
            "example": "graph" if getattr(spec, "graph_level", False) else None,  # if it is not the usual one
            "image_sizes": asdict(ready.sizes) if "sizes" in KINDS[spec.kind].asks else None,
        },
        "task": ready.task.name,
        "loss": ready.task.loss_name,
        "model_settings": ready.model_settings,
        "weights": asdict(ready.taken) if ready.taken else None,
        "teacher": ready.teacher.about if ready.teacher else None,
        "seed": ready.settings.seed,
        "command": _command(ready, given),
        "parameters": sum(p.numel() for p in ready.model.parameters() if p.requires_grad),
        "versions": {
            "cutaway": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "machine": {
            "device": str(ready.place.device),
            "precision": str(ready.place.autocast_dtype or ready.place.dtype).removeprefix("torch."),
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "instructions": cpu_capability(),
            "threads": torch.get_num_threads(),
            "platform": platform.platform(),
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run_id(about: Mapping[str, Any]) -> str:
    """Return an id of the run for its checkpoints: the SHA-256 of the entries of run.json that never change."""
    data = [about["data"][key] for key in ("fingerprint", "split_hash")]
    kept = [about[key] for key in ("model", "model_settings", "seed", "command")]
    return hashlib.sha256(json.dumps([data, kept], sort_keys=True).encode()).hexdigest()


def _command(ready: TrainingSetup, given: Mapping[str, Any]) -> str:
    """Return the command that repeats this training, or the Python call for your own module or data from Python."""
    own, in_memory = isinstance(ready.preset, CustomPreset), ready.data.source == IN_MEMORY
    if own or in_memory:
        named = {k: v for k, v in given.items() if k.isidentifier()}
        others = {k: v for k, v in given.items() if k not in named}
        model = f"{ready.preset.name}()" if own else repr(ready.preset.name)
        data = "data" if in_memory else repr(ready.data.source)
        words = [model, data, *(f"{k}={v!r}" for k, v in named.items()), *([f"**{others!r}"] if others else [])]
        return f"cutaway.train({', '.join(words)})"
    return shell_command("train", ready.preset.name, ready.data.source, given)


def absolute_source(source: str) -> str | None:
    """Return the absolute path of a file or folder, or of two files separated by a comma.

    The result is None for a named data set and for data from Python.
    """
    if source in NAMED or source == IN_MEMORY:
        return None
    if Path(source).expanduser().exists():
        return str(Path(source).expanduser().resolve())
    return ",".join(str(Path(one).expanduser().resolve()) for one in source.split(","))


def evaluation_document(ready: TrainingSetup, name: str, folder: Path) -> dict[str, Any]:
    """Return the content of evaluation.json for one split: metrics, details, the worst mistakes and other examples."""
    split, task = ready.data.splits[name], ready.task
    assert split.target is not None
    size = evaluation_batch_size(ready.settings.eval_batch_size, ready.data.spec)
    if isinstance(task, Contrastive):
        task.remember(*evaluate_split(ready.model, ready.data.splits["train"], ready.place, size, task))
    outputs, target = evaluate_split(
        ready.model,
        split,
        ready.place,
        size,
        task,
        flip=ready.settings.tta,
        decodes=True,
        num_beams=ready.settings.num_beams,
        length_penalty=ready.settings.length_penalty,
        tokens=ready.settings.batch_tokens,
    )
    train = ready.data.splits["train"]
    assert train.target is not None
    counts = getattr(train, "target_counts", None)  # for tokens read from shards, which are never held in memory
    baseline = task.baseline(train.target, target) if counts is None else task.baseline_from_counts(counts, target)  # type: ignore[attr-defined]
    fractions = getattr(ready.data.preprocessing, "fractions", None)
    found = SplitOutputs(outputs, target)
    more, tasks = evaluate_tasks(ready.data.tasks, ready.model, task, split, ready.place, folder, found)
    return {
        "split": name,
        "count": len(split),
        "watch": headline_metric(task),
        "metrics": {k: m.to_json() for k, m in {**task.metrics(outputs, target), **more}.items()},
        **task.details(outputs, target),
        **tasks,
        "baseline": baseline,
        **(task.beside(outputs, train, split) if hasattr(task, "beside") else {}),
        **evaluation_examples.task_details(ready, split, outputs, target),
        **evaluation_examples.select_examples(
            split, task, outputs, target, evaluation_examples.mask_panels(ready, split), fractions
        ),
    }


def perceptron_summary(ready: TrainingSetup, state: TrainingState) -> str | None:
    """Return the result of a perceptron's training: whether it converged, or ever can. None for other losses."""
    if ready.task.loss_name != "perceptron":
        return None
    if state.stopped == CONVERGED:
        return (
            f"The perceptron converged after {state.mistakes} mistakes: epoch {state.epoch} passed without one, "
            "so the hyperplane it found separates the training examples."
        )
    split = ready.data.splits["train"]
    indices = torch.arange(len(split))
    batch = next(iter(split.batches([indices])))
    x, target = batch.inputs[0].flatten(1).double().numpy(), batch.target.numpy()
    classes = range(len(ready.data.spec.target.classes))
    one_from_rest = [target == k for k in (classes if len(classes) > 2 else [1])]
    if x.size > MAX_SEPARABILITY_NUMBERS:
        return "The perceptron did not converge: its last epoch still made mistakes."
    if all(linearly_separable(x, y) for y in one_from_rest):
        return (
            "The perceptron did not converge yet, though the classes can be separated by a hyperplane: "
            "it will converge after finitely many mistakes. Give it more epochs."
        )
    return (
        "The perceptron did not converge and never will: no hyperplane separates the classes "
        "(shown by a linear programme that has no solution). A network with a hidden layer can: try mlp."
    )
