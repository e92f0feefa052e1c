"""An exported network in onnxruntime beside the same network in PyTorch, eager: docs/export.md has the table.

python -m benchmarks export
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from cutaway.deploy.exported_program import trace
from cutaway.deploy.onnx import _convert, check_conversion
from cutaway.deploy.preprocessing_graph import ExportModule, IdentityPreprocessing
from cutaway.models.registry import create_model

from .pairs import race

BATCHES = (1, 32)


def main(runs: int = 15) -> None:
    """Print the table: milliseconds of the process on one thread, and the median of the ratios of neighbouring runs."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| network | batch | onnxruntime | PyTorch | ratio | quartiles |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, (model, inputs, free) in networks().items():
        whole = ExportModule(model, IdentityPreprocessing()).eval()
        dynamic = tuple(dict.fromkeys(dims, torch.export.Dim.DYNAMIC) for dims in free)
        traced = trace(whole, tuple(f"x{i}" for i in range(len(free))), dynamic, [inputs(n) for n in (2, 3, 1)])
        session = check_conversion(_convert(traced), traced)
        for batch in BATCHES:
            given = inputs(batch)
            feed = session.feed(given)

            def eager(given: tuple[Tensor, ...] = given, whole: nn.Module = whole) -> object:
                with torch.inference_mode():
                    return whole(*given)

            pair = race(name, lambda: session.session.run(None, feed), eager, runs, clock=time.process_time)  # noqa: B023
            print(
                f"| {name} | {batch} | {_ms(pair.ours)} | {_ms(pair.peer)} | {pair.ratio:.2f} "
                f"| {pair.low:.2f} to {pair.high:.2f} |",
                flush=True,
            )


def _ms(seconds: float) -> str:
    """Return a time in milliseconds to three digits: 0.219 ms, 1,480 ms."""
    return f"{float(f'{1000 * seconds:.3g}'):,g} ms"


def networks():  # type: ignore[no-untyped-def]  # name → model, inputs of so many examples, free dimensions
    """Small networks of each kind, with weights of seed 0."""

    def texts(n: int) -> tuple[Tensor, ...]:
        return torch.randint(1, 1000, (n, 40 + n % 3)), torch.ones(n, 40 + n % 3, dtype=torch.bool)

    return {
        "mlp, 64 columns": (create_model("mlp", in_features=64), lambda n: (torch.randn(n, 64),), ((0,),)),
        "resnet20, 32×32": (create_model("resnet20"), lambda n: (torch.randn(n, 3, 32, 32),), ((0,),)),
        "textcnn, 40 tokens": (create_model("textcnn", vocab_size=1000), texts, ((0, 1), (0, 1))),
        "lstm, 40 tokens": (create_model("lstm", vocab_size=1000), texts, ((0, 1), (0, 1))),
        "distilbert-base, 40 tokens": (create_model("distilbert-base", layers=2), texts, ((0, 1), (0, 1))),
    }
