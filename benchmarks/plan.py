"""What `cutaway plan` says beside what is measured: python -m benchmarks.plan writes docs/planning.md.

Each preset is planned in one process and trained for a few steps in another. The truth is every byte that PyTorch's
allocator hands out in the second step, as its profiler has it. Beside it: PyTorch's own estimator, MemTracker of
`torch.distributed._tools`, its FlopCounterMode, and the resident memory of the process.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from cutaway.core.memory_budget import format_bytes
from cutaway.data.dataset_base import Batch
from cutaway.distributed import checkpoint
from cutaway.distributed.group import process_group, rank
from cutaway.experiments.planner import plan
from cutaway.experiments.settings import GPUS
from cutaway.training.batches import largest_batch
from cutaway.training.setup import TrainingSetup, setup_training
from cutaway.training.simulated_step import simulate_step
from cutaway.training.trainer import silent_trainer

from .formulas import flops_per_token, utilization

PAGE = Path(__file__).parents[1] / "docs" / "planning.md"
SMALL = "model.layers=4 model.dim=256 model.heads=4"
CASES = (
    "lenet5-modern digits",
    "mlp california_housing",
    "resnet20 cifar10",
    "resnet18 cifar10 batch_size=32",
    "densenet-40-12 cifar10 batch_size=16",
    "vit-tiny/16 digits",
    "unet-small digit_scenes_small",
    f"gpt2 tinyshakespeare {SMALL}",
    "lstm tinyshakespeare",
    "transformer-tiny multi30k",
    "textcnn sst2",
    "gcn cora",
    "mpnn esol",
    "cnn-lstm moving_digits",
    "resnet20 cifar10 optimizer=muon ema=0.99",
    f"gpt2 tinyshakespeare {SMALL} accumulate=4",
)
ON_GPU = (
    "gpt2 tinyshakespeare model.context_length=1024 length=1024 batch_size=8",
    f"gpt2 tinyshakespeare {SMALL}",
    "vit-tiny/16 digits",
    "lenet5-modern digits",
    "lstm tinyshakespeare",
    "transformer-tiny multi30k",
    "resnet18 cifar10 batch_size=512",
    "densenet-40-12 cifar10 batch_size=64",
)
SHARED = "gpt2 tinyshakespeare model.layers=6 model.dim=256 model.heads=4 length=128 batch_size=16 processes=2"
SECOND = "the second step"
# Sizes of Llama, by which torchtitan's formula counts: N, of it the embedding (of fms-fsdp's rows none), layers, heads,
# numbers in a head, tokens; then the GPU, tokens a second of each, and the utilization that is published.
PUBLISHED = (
    ("Llama 3.1 8B, torchtitan, FSDP", 8.03e9, 128256 * 4096, 32, 32, 128, 8192, "h100", 5762, 0.337),
    ("Llama 3.1 8B, torchtitan, FSDP and compile", 8.03e9, 128256 * 4096, 32, 32, 128, 8192, "h100", 6667, 0.390),
    ("Llama 2 7B, fms-fsdp", 6.74e9, 0, 32, 32, 128, 4096, "a100", 4550, 0.68),
    ("Llama 2 13B, fms-fsdp", 13.02e9, 0, 40, 40, 128, 4096, "a100", 2150, 0.61),
    ("Llama 2 34B, fms-fsdp", 33.74e9, 0, 48, 64, 128, 4096, "a100", 820, 0.55),
    ("Llama 2 70B, fms-fsdp", 68.98e9, 0, 80, 64, 128, 4096, "a100", 410, 0.55),
)
# A model of our own with as many weights as Llama 3.1 8B, in matrices of the same sizes but for the MLP's, which has
# two where Llama has three.
LLAMA = (
    "parallel-transformer gutenberg model.layers=32 model.dim=4096 model.heads=32 model.kv_heads=8 "
    "model.ffn_dim=21504 model.tie_weights=false model.vocab_size=128256 length=8192 loss_chunk=0"
)


def given_by(case: str) -> tuple[str, str, dict[str, Any]]:
    """Model, data and settings of what is typed."""
    model, data, *settings = case.split()
    return model, data, dict(word.split("=", 1) for word in settings)


class Steps:
    """The largest step of a training, made again and again."""

    def __init__(self, ready: TrainingSetup) -> None:
        self.index = largest_batch(ready.data.splits["train"], ready.settings)
        self.batch: Batch = next(iter(ready.data.splits["train"].batches([self.index], seed=0)))
        self.passes = min(2, ready.settings.accumulate)
        self.trainer = silent_trainer(ready)
        self.trainer.plan = [self.index] * self.passes

    def make(self) -> None:
        """One more."""
        self.trainer.state.batch = 0
        self.trainer.step([self.batch] * self.passes, steps=1000)


def allocated(ready: TrainingSetup) -> tuple[int, Steps]:
    """Bytes that PyTorch's allocator has handed out at most while the second step is made, with the weights and the
    batch that were there before; and the training."""
    there = [*ready.model.parameters(), *ready.model.buffers()]
    gc.collect()
    with _watched() as seen:
        steps = Steps(ready)
        steps.make()
        with torch.profiler.record_function(SECOND):
            steps.make()
    held = {x.untyped_storage().data_ptr() for x in there}
    before = [x for x in (*steps.batch.inputs, steps.batch.target) if _is_of_the_data(x, ready)]
    given = _bytes(x for x in before if x.untyped_storage().data_ptr() not in held)
    return _peak(seen) + _bytes(there) + given, steps


def _watched() -> torch.profiler.profile:
    """PyTorch's profiler, with what its allocator hands out."""
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)


def _peak(seen: torch.profiler.profile) -> int:
    """Bytes that were handed out at most within the second step, of those since the profiler began."""
    events = list(seen.profiler.kineto_results.events())  # type: ignore[union-attr]
    (second,) = (event for event in events if event.name() == SECOND)
    now = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        if event.start_ns() >= second.start_ns():
            peak = max(peak, now)
    return int(peak)


def _is_of_the_data(x: Tensor, ready: TrainingSetup) -> bool:
    """Whether a batch's tensor was there before it was asked for, as a graph's are."""
    again = next(
        iter(ready.data.splits["train"].batches([largest_batch(ready.data.splits["train"], ready.settings)], seed=0))
    )
    return any(x.data_ptr() == y.data_ptr() for y in (*again.inputs, again.target))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum({x.untyped_storage().data_ptr(): x.nbytes for x in tensors if x.layout is torch.strided}.values())


def tracked(steps: Steps) -> int:
    """Bytes at the peak of a step as MemTracker has them; 0 where it cannot."""
    tracker = MemTracker()
    try:
        tracker.track_external(steps.trainer.model, *steps.trainer.optimizers, *steps.batch.inputs, steps.batch.target)
        with tracker:
            steps.make()
    except NotImplementedError:  # it knows no sparse tensors, and no second forward pass before the step
        return 0
    (snapshot,) = (found for device, found in tracker.get_tracker_snapshot("peak").items() if device.type == "cpu")
    return int(snapshot["Total"])


def counted(steps: Steps) -> int:
    """Operations of a step as PyTorch's FlopCounterMode has them."""
    with FlopCounterMode(display=False) as counter:
        steps.make()
    return int(counter.get_total_flops()) // steps.passes * steps.trainer.settings.accumulate


def measured(case: str) -> dict[str, float]:
    """What is measured of a training."""
    torch.set_num_threads(1)
    ready = setup_training(*given_by(case))
    weights = _bytes(ready.model.parameters())
    before = _status("VmRSS") - weights
    truth, steps = allocated(ready)
    Path("/proc/self/clear_refs").write_text("5")
    steps.make()
    resident = _status("VmHWM") - before
    return {"allocated": truth, "resident": resident, "tracked": tracked(steps), "flops": counted(steps)}


def planned(case: str) -> dict[str, float]:
    """What is planned of it."""
    step = simulate_step(setup_training(*given_by(case)))
    return {"planned": step.total, "flops": step.flops, "imagined": step.imagined}


def shared(case: str, folder: str) -> None:
    """Print the bytes that PyTorch's allocator has handed out at most in a second step of the last of several
    processes, while a checkpoint of parts is written: this is what each of them does."""
    torch.set_num_threads(1)
    with process_group():
        ready = setup_training(*given_by(case))
        truth = allocated_together(ready, Path(folder))
    if rank() == ready.place.processes - 1:
        print(json.dumps(truth))


def allocated_together(ready: TrainingSetup, folder: Path) -> int:
    """Bytes that PyTorch's allocator has handed out at most in a second step of this one of several processes, while
    a checkpoint of parts is written to the folder; the data itself is left out."""
    made, write = threading.Event(), checkpoint.write_tensors
    checkpoint.write_tensors = lambda *given: write(*given) if made.wait() else ""
    split = ready.data.splits["train"]
    data = [x for one in ready.data.splits.values() for x in vars(one).values() if isinstance(x, Tensor)]
    with _let_go():
        steps = Steps(ready)
        steps.trainer.checkpoints = folder
        steps.batch = next(iter(split.batches([ready.place.shard_batch(steps.index)], seed=0)))
        steps.make()
        gradients = [p.grad for p in steps.trainer.model.parameters() if p.grad is not None]
        buckets = {} if ready.deferred else _storages(gradients)  # in which those of ddp lie
        for parameter in steps.trainer.model.parameters():
            parameter.grad = None
        del gradients
        before = sum((buckets | _held()).values()) - sum(_storages(data).values())
        with _watched() as seen:
            if ready.deferred:  # in parts, of which a copy is written meanwhile
                steps.trainer.checkpoint_now()
            with torch.profiler.record_function(SECOND):
                steps.make()
    made.set()
    steps.trainer.strategy.saved()
    checkpoint.write_tensors = write
    return before + _peak(seen)


def _held() -> dict[int, int]:
    """Bytes of all tensors that there are, by where they stand."""
    gc.collect()
    return _storages(x for x in gc.get_objects() if type(x) in (Tensor, nn.Parameter) and x.layout is torch.strided)


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of all that these tensors stand in, by its address."""
    return {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}


@contextmanager
def _let_go() -> Iterator[None]:
    """Within this context a collective returns when gloo's own thread has let go of its tensors: the profiler does not
    see what another thread frees, and would count it to the end."""
    collectives = dist.all_to_all_single, dist.all_gather

    def waiting(collective: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> None:
            tensors = [x for x in tree_leaves(given) if isinstance(x, Tensor)]
            before = [x._use_count() for x in tensors]
            collective(*given)
            while [x._use_count() for x in tensors] > before:
                time.sleep(0.001)

        return call

    dist.all_to_all_single, dist.all_gather = map(waiting, collectives)
    try:
        yield
    finally:
        dist.all_to_all_single, dist.all_gather = collectives


def shared_rows() -> list[str]:
    """The table of several processes."""
    rows = []
    for strategy in ("ddp", "fsdp"):
        case = f"{SHARED} parallel={strategy}"
        model, data, given = given_by(case)
        ours = plan(model, data, given)[strategy].memory.total
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={given['processes']}"]
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, *launch, "-m", "benchmarks.plan", "shared", case, folder]
            truth = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        rows.append(f"| `{case}` | {format_bytes(ours)} | {format_bytes(truth)} | {ours / truth:.3f} |")
        print(rows[-1], flush=True)
    return rows


def _status(key: str) -> int:
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) * 1024


def _aside(what: str, case: str) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.plan", what, case]
    found: dict[str, float] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def memory_rows() -> list[str]:
    """The table of memory."""
    rows = []
    for case in CASES:
        ours, truth = _aside("planned", case), _aside("measured", case)
        ratio = ours["planned"] / truth["allocated"]
        second = f"{truth['tracked'] / truth['allocated']:.3f}" if truth["tracked"] else ""
        flops = ours["flops"] / truth["flops"]
        rows.append(
            f"| `{case}` | {format_bytes(ours['planned'])} | {format_bytes(truth['allocated'])} | {ratio:.3f} |"
            f" {second} | {format_bytes(truth['resident'])} | {flops:.3f} |"
        )
        print(rows[-1], flush=True)
    return rows


def published_rows() -> list[str]:
    """The table of utilization."""
    rows = []
    for name, n, embedding, layers, heads, size, length, gpu, speed, said in PUBLISHED:
        each = flops_per_token(n, embedding, layers, heads, size, length)
        found = utilization(each, speed, GPUS[gpu].peak)
        rows.append(f"| {name} | {GPUS[gpu].name} | {speed:,} | {each:.3g} | {found:.1%} | {said:.1%} |")
    return rows


def llama_rows() -> list[str]:
    """The table of an 8B model on GPUs, as we plan it."""
    rows = []
    for gpus, said, speed in ((8, 82.4, 6667), (128, 67.0, 6514)):
        model, data, given = given_by(LLAMA)
        asked = {"gpu": "h100", "gpus": gpus, "gpu_memory": 96, "batch_size": 2 * gpus, "utilization": 0.39}
        found = plan(model, data, {**given, **asked, "parallel": "fsdp", "recompute": "selective"})
        (fsdp,) = found.strategies
        seconds = fsdp.seconds_per_step or float("nan")
        rows.append(
            f"| {gpus} | {fsdp.memory.total / 2**30:.1f} GiB | {said} GiB | {found.tokens / gpus / seconds:,.0f} | "
            f"{speed:,} |"
        )
        print(rows[-1], flush=True)
    return rows


def gpu_rows(gpu: str, cases: Sequence[str] = ON_GPU) -> list[str]:
    """The table of a GPU that is at hand and listed by this name: what is planned for it, and its own clock and
    allocator."""
    rows = []
    for case in cases:
        model, data, given = given_by(case)
        planned = plan(model, data, {**given, "gpu": gpu})["one"]
        seconds, most = by_its_clock(setup_training(model, data, given))
        assert planned.seconds_per_step is not None
        memory = planned.memory.total / most
        rows.append(
            f"| `{case}` | {1e3 * planned.seconds_per_step:.2f} ms ({planned.bound}) | {1e3 * seconds:.2f} ms | "
            f"{planned.seconds_per_step / seconds:.2f} | {format_bytes(planned.memory.total)} | {format_bytes(most)} | "
            f"{memory:.3f} |"
        )
        print(rows[-1], flush=True)
    return rows


def by_its_clock(ready: TrainingSetup) -> tuple[float, int]:
    """Seconds of a step on this GPU, the median of the last of some runs of ten, and the bytes that its allocator has
    handed out at most, without the data that lies there for good."""
    steps = Steps(ready)
    splits = [split for split in (steps.trainer.train, steps.trainer.val) if split is not None]
    steps.batch = next(iter(steps.trainer.train.batches([steps.index], seed=0)))
    data = _bytes(x for split in splits for x in vars(split).values() if isinstance(x, Tensor) and x.is_cuda)
    steps.make()
    torch.cuda.reset_peak_memory_stats()
    steps.make()
    most = torch.cuda.max_memory_allocated() - data
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - began < 3 and len(times) < 50):
        before = time.perf_counter()
        for _ in range(10):
            steps.make()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - before) / 10)
    return statistics.median(times[len(times) // 2 :]), most


def main() -> None:
    """Measure, and write the page anew."""
    about = f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()}, PyTorch {torch.__version__}, one thread."
    tables = {"published": published_rows(), "shared": shared_rows(), "llama": llama_rows(), "memory": memory_rows()}
    write(tables, about)


def write(tables: dict[str, list[str]], about: str) -> None:
    """Write rows into the page's tables, below the two lines of each that are its heading."""
    text = PAGE.read_text(encoding="utf-8")
    for name, rows in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        table, _, tail = rest.partition(end)
        text = "".join((head, begin, "\n".join([*table.splitlines()[:2], *rows, ""]), end, tail))
    head, _, rest = text.partition("<!-- measured -->\n")
    PAGE.write_text(f"{head}<!-- measured -->\n{about}\n{rest.partition(chr(10))[2]}", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        what, case, *more = sys.argv[1:]
        if what == "shared":
            shared(case, *more)
        elif what == "gpu":
            gpu_rows(case, more or ON_GPU)
        else:
            print(json.dumps({"planned": planned, "measured": measured}[what](case)))
    else:
        main()
