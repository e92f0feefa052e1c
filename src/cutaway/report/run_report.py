"""The report of a run: its model's layers are traced, then its page is written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..files import write_json
from ..inspect.example import inputs_like
from ..inspect.layers import layer_table
from ..models.registry import preset
from ..training.run import Run
from .inside.network import drawing_of
from .page import write_report


def report_on(run: Run) -> Path:
    """Write layers.json and report.html into the run's folder; the path of the page."""
    if (run.folder / "model").is_dir():
        card = preset(run.about["model"]).card.card
        dtype = next(run.model.parameters()).dtype
        inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs_like(run.spec)]
        layers = layer_table(run.model, *inputs)
        tree = drawing_of(layers, run.model)
        config: Any = run.model.config
        write_json(
            run.folder / "layers.json",
            {**layers.to_json(), "tree": tree, "card": card.to_json(), "config": asdict(config)},
        )
    return write_report(run.folder)
