"""Cost of the activation functions: python -m benchmarks activations.

PyTorch's fused functions, which models use, and a layer of 256 neurons beside them, on a batch of 512 examples with 256
features in float32. One thread, in processor time. Each round runs every function once; times are medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from cutaway.nn.activations import ACTIVATIONS, activation

from .pages import replace_section

PAGE = Path("docs/activations.md")
BEGIN, END = "<!-- measured by python -m benchmarks activations -->\n", "<!-- end -->\n"
EXAMPLES, FEATURES = 512, 256
ROUNDS = 31
REPEATS = 5  # in one measurement
LAYER = "linear layer, 256 to 256"


def forward(module: nn.Module) -> Callable[[], object]:
    """A function that runs the forward pass."""
    x = torch.randn(EXAMPLES, FEATURES, generator=torch.Generator().manual_seed(0))

    def run() -> None:
        with torch.inference_mode():
            for _ in range(REPEATS):
                module(x)

    return run


def training(module: nn.Module) -> Callable[[], object]:
    """A function that runs the forward and the backward pass."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, FEATURES, generator=generator).requires_grad_()
    above = torch.randn(EXAMPLES, FEATURES, generator=generator)

    def run() -> None:
        for _ in range(REPEATS):
            x.grad = None
            module(x).backward(above)

    return run


def measure(rounds: int = ROUNDS) -> dict[str, tuple[float, float]]:
    """Median seconds of each activation and of the layer, forward and with the backward pass."""
    modules = {name: activation(name) for name in ACTIVATIONS if name != "identity"}
    modules[LAYER] = nn.Linear(FEATURES, FEATURES)
    runs = {name: (forward(module), training(module)) for name, module in modules.items()}
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in runs}
    for k in range(rounds + 1):
        for name, both in runs.items():
            for run, found in zip(both, times[name]):
                began = time.process_time()
                run()
                taken = (time.process_time() - began) / REPEATS
                if k > 0:  # the first round is not counted
                    found.append(taken)
    return {name: (statistics.median(a), statistics.median(b)) for name, (a, b) in times.items()}


def table(found: dict[str, tuple[float, float]]) -> list[str]:
    """The lines of the table, the cheapest in training first."""
    lines = [
        "| activation | forward, ms | forward and backward, ms | relative to ReLU |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, (once, both) in sorted(found.items(), key=lambda row: row[1][1]):
        relative = f"{both / found['relu'][1]:.2f}"
        lines.append(f"| {name.replace('_', ' ')} | {1000 * once:.3f} | {1000 * both:.3f} | {relative} |")
    return lines


def findings(found: dict[str, tuple[float, float]]) -> str:
    """A sentence on the cost beside that of the layer."""
    functions = {name: both for name, (_, both) in found.items() if name != LAYER}
    most = max(functions, key=lambda name: functions[name])
    relu, gelu, worst = (100 * functions[name] / found[LAYER][1] for name in ("relu", "gelu", most))
    return (
        f"In training, ReLU needs {relu:.0f} % of the time of the layer before it, GELU {gelu:.0f} %, and the most "
        f"expensive, {most.replace('_', ' ')}, {worst:.0f} %."
    )


def main() -> int:
    """Measure all activations, print the table and write it to the page."""
    from .__main__ import machine  # which imports this module

    torch.set_num_threads(1)
    found = measure()
    lines = [machine(), "", *table(found), "", findings(found)]
    print("\n".join(lines))
    replace_section(PAGE, BEGIN, END, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
