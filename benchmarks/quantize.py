"""Networks trained by their recipes, quantized, and held beside what they were: docs/quantization.md has the table.

python -m benchmarks quantize

It trains for about half an hour on one core. With CUTAWAY_RUNS the runs are kept in that folder and, where they are
there already, not trained again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from recipes import minilm

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.apps.cli.train import format_metric
from cutaway.deploy.compression import ModelMeasurement, compare_runs

RECIPES = Path(__file__).parent.parent / "recipes"
# Its name, its recipe, settings other than the recipe's, and how it is quantized.
ROWS: list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = [
    ("lenet5-modern, digits", "lenet5-modern-digits", {}, [{"method": "static"}, {"bits": 4}]),
    ("resnet20, a part of CIFAR-10", "resnet20-cifar10-part", {"minutes": 9, "epochs": 20}, [
        {"method": "static"}, {"bits": 4}, {"bits": 4, "qat": 2}, {"method": "bfloat16"},
    ]),
    ("textcnn, SST-2", "textcnn-sst2", {}, [{"method": "static"}, {"method": "bfloat16"}]),
    ("lstm, Tiny Shakespeare", "lstm-tinyshakespeare", {"minutes": 9}, [{}, {"bits": 4}]),
    ("MiniLM, SST-2", "bert-minilm-sst2", {"epochs": 1}, [{"method": "dynamic"}, {"method": "bfloat16"}]),
    ("gpt2 of 4 layers, Tiny Shakespeare", "gpt2-tinyshakespeare", {}, [
        {"method": "dynamic"}, {"bits": 4}, {"bits": 4, "qat": 1}, {"method": "bfloat16"},
    ]),
]  # fmt: skip


def main(rows: list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]] | None = None) -> None:
    """Train, quantize, and print a row for each way."""
    torch.set_num_threads(1)
    print(
        "| network, data | method | score before | after | size | batch 1 | batch 32 |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(os.environ.get("CUTAWAY_RUNS", folder))
        for name, recipe, other, ways in rows or ROWS:
            try:
                run = trained(kept / recipe, recipe, other)
            except cutaway.CutawayError as error:  # data or weights that are not here
                print(f"{name}: {error}", file=sys.stderr)
                continue
            for way in ways:
                with tempfile.TemporaryDirectory() as out:
                    small = cutaway.quantize(run, Path(out) / "small", **way)
                    print(row(name, small, *compare_runs([run, small])), flush=True)
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, PyTorch {torch.__version__}, one thread.")


def trained(folder: Path, recipe: str, other: dict[str, Any]) -> cutaway.Run:
    """The run of a recipe, in that folder. Raises CutawayError where its data or weights are not here."""
    if (folder / "run.json").is_file():
        return cutaway.Run(folder)
    found = tomllib.loads((RECIPES / f"{recipe}.toml").read_text())
    settings = minilm.in_place({**flatten(found["settings"]), "threads": 1, "tensorboard": False, **other})
    return cutaway.train(found["model"], found["data"], out=folder, **settings)


def row(name: str, small: cutaway.Run, before: ModelMeasurement, after: ModelMeasurement) -> str:
    """A row of the table: times are how many times as fast."""
    about = small.about["quantized"]
    method = about["method"] + (f", {about['bits']} bits" if about["bits"] == 4 else "")
    method += f", qat={about['qat']}" if about.get("qat") else ""
    scores = [format_metric(before.metric, one.score.value) for one in (before, after)]
    faster = [f"{before.milliseconds[n] / after.milliseconds[n]:.1f} ×" for n in before.milliseconds]
    return f"| {name} | {method} | {' | '.join(scores)} | {after.bytes / before.bytes:.2f} | {' | '.join(faster)} |"
