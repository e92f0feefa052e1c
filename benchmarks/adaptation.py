"""Low-rank adaptation of GPT-2 small: its peak memory and its step, beside all weights learning and beside PEFT's.

python -m benchmarks.adaptation          the rows alone
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.experiments.cost import release_memory
from cutaway.models.registry import create_model
from cutaway.nn.lora import adapt, adaptable
from cutaway.training.config import TrainSettings
from cutaway.training.optim import build_optimizers
from cutaway.verify.libraries import make_torchvision_importable

from .attention import status, theirs
from .pairs import Pair, race

RANK, ALPHA, BATCH, LENGTH = 8, 16.0, 4, 128
CASE = f"gpt2, {BATCH} × {LENGTH} tokens, lora={RANK}"


def rows(runs: int = 7, memory_runs: int = 3) -> list[tuple[Pair, float]]:
    """Memory beside both peers, and time beside PEFT's."""
    return [
        (_memory(f"memory: {CASE}, vs. all weights", "ours", "whole", memory_runs), 0.6),
        (_memory(f"memory: {CASE}, vs. PEFT", "ours", "peft", memory_runs), 1.0),
        (race(f"step: {CASE}, vs. PEFT", side("ours"), side("peft"), runs, warm_up=1), 1.0),
    ]


def side(name: str) -> Callable[[], object]:
    """A training step of GPT-2: with LoRA of `ours`, of `peft`, or with its `whole` self learning."""
    torch.manual_seed(0)
    model: nn.Module = create_model("gpt2", dropout=0.0)
    tokens = torch.randint(model.config.vocab_size, (BATCH, LENGTH + 1))
    answers: Callable[[Tensor], Tensor] = model
    if name == "ours":
        adapt(model, adaptable(model, ()), RANK, ALPHA)
    elif name == "peft":
        make_torchvision_importable()  # PEFT asks whether it is there
        import peft

        config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["c_attn"], fan_in_fan_out=True)
        model = peft.get_peft_model(theirs("gpt2", model), config)

        def answers(x: Tensor) -> Tensor:
            return model(x).logits

    model.train()
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizers = (
        build_optimizers(model, TrainSettings()) if name != "peft" else [torch.optim.AdamW(learning, fused=True)]
    )

    def step() -> None:
        loss = F.cross_entropy(answers(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        for p in learning:
            p.grad = None
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def _memory(title: str, ours: str, peer: str, runs: int) -> Pair:
    """The most memory that a process takes for two steps above what it had before the network, in bytes."""
    peaks = [(_peak(ours), _peak(peer)) for _ in range(runs)]
    ratios = sorted(a / b for a, b in peaks)
    medians = [statistics.median(of) for of in zip(*peaks)]
    return Pair(title, *medians, statistics.median(ratios), ratios[0], ratios[-1], runs)


def _peak(name: str) -> float:
    words = [sys.executable, "-m", "benchmarks.adaptation", name]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _print_peak(name: str) -> None:
    make_torchvision_importable()
    import peft  # noqa: F401  # a part of all sides' memory

    gc.collect()
    before = status("VmRSS")
    step = side(name)
    release_memory()  # what building gave back is nobody's
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    step()
    step()
    print(status("VmHWM") - before)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _print_peak(sys.argv[1])
    else:
        from .__main__ import row

        for pair, limit in rows():
            print(row(pair, limit), flush=True)
