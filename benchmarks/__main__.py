"""Run the benchmarks and write docs/benchmarks.md: python -m benchmarks [NAME ...]."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from cutaway.core.errors import DataError, FileError

from . import (
    activations,
    adaptation,
    applications,
    attention,
    convolution,
    coverage,
    export,
    feeding,
    graphs,
    guard,
    images,
    loops,
    memory,
    objects,
    processes,
    quantize,
    sequences,
    serving,
    sounds,
    speech,
    startup,
    statistics,
    studio,
    thoughts,
    vision,
    words,
)
from .pairs import Pair

GROUPS: dict[str, Callable[[], list[tuple[Pair, float]]]] = {
    "loops": loops.rows,
    "memory": memory.rows,
    "objects": objects.rows,
    "processes": processes.rows,
    "vision": vision.rows,
    "sequences": sequences.rows,
    "attention": attention.rows,
    "adaptation": adaptation.rows,
    "graphs": graphs.rows,
    "words": words.rows,
    "applications": applications.rows,
    "images": images.rows,
    "feeding": feeding.rows,
    "sounds": sounds.rows,
    "speech": speech.rows,
    "thoughts": thoughts.rows,
    "startup": startup.rows,
    "studio": studio.rows,
    "serving": serving.rows,
}

ELSEWHERE: dict[str, Callable[[], object]] = {
    "statistics": statistics.main,
    "coverage": coverage.main,
    "guard": guard.main,
    "export": export.main,
    "quantize": quantize.main,
    "convolution": convolution.main,
    "activations": activations.main,
}  # what is told on a page of its own, when it is asked for by name
BY_HAND = "\n## "  # what benchmarks.corpus, .tars and .dry_run have measured, which is not done again

PAGE = """\
# Speed and memory benchmarks

Each row compares Cutaway with a peer in one run, with interleaved measurements. Times are medians. The ratio is the
median of the ratios of neighbouring runs, with their quartiles (for memory: minimum and maximum). A ratio below 1
means that Cutaway is faster or needs less memory. `make bench` repeats the measurements.

{machine}

| benchmark | Cutaway | peer | Cutaway / peer | quartiles | limit | runs | of peak |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

The peers:

- loops: a bare PyTorch loop on the same tensors with the same model and fused AdamW
- image networks (steps, memory, inference): torchvision's networks with the same weights and default construction,
  PyTorch's SGD with its defaults
- applications: the independent implementation of their card (transformers, torchvision, diffusers, PyTorch Geometric)
  with the same weights and fused AdamW
- read: torchvision's `ImageFolder`, transforms and `DataLoader` with the same number of workers; for sounds `scipy`
  by hand
- feed: the training steps that use the batches
- tree of thoughts: the same search without sharing between branches, with Cutaway's `generate` and with transformers'
- prefix beam search: a plain loop over a dictionary of prefixes
- the language model (lstm): a bare loop around `nn.LSTM` with the same batches, state and clipping
- lengths: the same network on the batch padded to its longest sequence
- text: the `tokenizers` library
- Transformers (steps, memory, generation, sentences): transformers' networks with the same weights, their loss by
  labels, their `generate` with its cache, fused attention and fused AdamW
- LoRA: the same network with all weights trained, and PEFT's adapters of transformers' network
- graphs: PyTorch Geometric's layers with their cached normalization
- words: gensim with the same number of workers
- start: `python -c "import torch"`
- studio: the same training in the same process without a watcher, and the loop of `cutaway train`
- processes: see the row
- objects: a bare loop on prepared tensors, in processor time; the row of reading is the additional time

Cutaway folds batch normalization into the preceding layers for inference.

*Of peak* is the number of operations of a Cutaway step in a second, as a fraction of those of a matrix product of
2048×2048 (on a GPU of 8192×8192), measured alternately. A step counts six operations for each multiply-add of the
network, also where the algorithm of the library needs fewer.

Rows of about a millisecond are measured with cold caches, because garbage is collected before each run. This is a
disadvantage for PyTorch's direct convolution: for 5×5 on 512×512 it takes 0.7 ms if it is called repeatedly, and the
Fourier transform 1.0 ms.
"""


def main(names: list[str]) -> int:
    """Measure the named groups (all, if none is named), print each row and write the page.

    A group whose data set is not on this machine and cannot be downloaded is skipped with a sentence.

    Returns:
        1 if a limit was passed, otherwise 0.
    """
    found: list[tuple[Pair, float]] = []
    skipped = []
    for name in names or GROUPS:
        try:
            if name in ELSEWHERE:
                ELSEWHERE[name]()
                continue
            for pair, limit in GROUPS[name]():
                found.append((pair, limit))
                print(row(pair, limit), flush=True)
        except (DataError, FileError) as error:  # a data set that is not here and cannot be downloaded
            skipped.append(name)
            print(f"Skipped {name}: {error}", flush=True)
    if skipped and not names:
        print(f"docs/benchmarks.md is unchanged, because these groups were skipped: {', '.join(skipped)}.")
    elif not names:
        text = PAGE.format(machine=machine(), rows="\n".join(row(p, m) for p, m in found))
        page = Path("docs/benchmarks.md")
        *_, by_hand = page.read_text().partition(BY_HAND)
        page.write_text(f"{text}{BY_HAND}{by_hand}")
    return int(any(p.ratio > limit for p, limit in found))


def row(pair: Pair, limit: float) -> str:
    """One row of the table."""
    memory = pair.name.startswith("memory")
    ours, peer = (f"{v / 2**20:.0f} MiB" if memory else f"{1000 * v:.3g} ms" for v in (pair.ours, pair.peer))
    late = " **missed**" if pair.ratio > limit else ""
    fraction = f"{100 * pair.fraction:.0f} %" if isinstance(pair, vision.Step) else ""
    return (
        f"| {pair.name} | {ours} | {peer} | {pair.ratio:.3f}{late} "
        f"| {pair.low:.3f} to {pair.high:.3f} | {limit:g} | {pair.runs} | {fraction} |"
    )


def machine() -> str:
    """What it was measured on, and when."""
    cpu = next(
        (s.split(":")[1].strip() for s in Path("/proc/cpuinfo").read_text().splitlines() if s.startswith("model name")),
        platform.machine(),
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu}, {torch.get_num_threads()} threads, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}, {platform.system()}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
