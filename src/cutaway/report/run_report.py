"""The report of a run: its model's layers are traced, then its page is written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from ..files import write_json
from ..inspect.layers import layer_table
from ..models.registry import preset
from ..training.run import Run
from .page import write_report


def report_on(run: Run) -> Path:
    """Write layers.json and report.html into the run's folder; the path of the page."""
    if (run.folder / "model").is_dir():
        card = preset(run.about["model"]).card.card
        facts = {name: getattr(card, name) for name in ("title", "authors", "year", "link", "equation")}
        divergences = [asdict(divergence) for divergence in card.divergences]
        dtype = next(run.model.parameters()).dtype
        layers = layer_table(run.model, torch.zeros(1, *run.spec.shape, dtype=dtype))
        write_json(run.folder / "layers.json", {**layers.to_json(), "card": {**facts, "divergences": divergences}})
    return write_report(run.folder)
