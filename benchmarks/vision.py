"""Image networks beside torchvision's: training steps, their peak memory, and inference.

Both sides have the same weights, images, batch and arithmetic (float32 on a CPU; with a GPU, steps in bfloat16 too).
Ours goes where the trainer puts it and has the trainer's optimizer; torchvision's is as its builder gives it, with
PyTorch's SGD. For inference ours has its batch normalization folded. Sizes are such that a step takes 0.3 to 1 s on two
cores.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.checkpoints.torchvision import torchvision_key, torchvision_names
from cutaway.core.config import as_text
from cutaway.data.dataset_base import Batch
from cutaway.experiments.cost import release_memory
from cutaway.inspect.layers import layer_table
from cutaway.models.base import as_output_tuple
from cutaway.models.registry import create_model
from cutaway.nn.textbook.folding import fold_batch_norm
from cutaway.training.config import TrainSettings
from cutaway.training.device import DeviceContext, select_device
from cutaway.training.optim import build_optimizers
from cutaway.verify.compare import difference

from .pairs import Pair, race
from .peers import torchvision

RATE = 1e-3
AUXILIARY_WEIGHT = 0.3  # of an auxiliary head's loss
SIDE = {"cpu": 2048, "cuda": 8192}  # of the matrices whose product is the machine's peak
GPU_BATCHES = 16  # as many times the batch where there is a GPU


@dataclass(frozen=True)
class Case:
    """A preset at one size, the same for both sides."""

    preset: str
    size: int  # pixels a side
    batch: int  # of a training step
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the model

    def __str__(self) -> str:
        settings = "".join(f" {key}={as_text(value)}" for key, value in self.settings.items())
        return f"{self.preset}{settings} {self.size}×{self.size}"

    def model(self) -> nn.Module:
        """Ours, with the weights of seed 0."""
        torch.manual_seed(0)
        return create_model(self.preset, **self.settings)


CASES = (
    Case("alexnet", 224, 16),
    Case("vgg11", 64, 16),
    Case("googlenet", 112, 16),
    Case("resnet18", 64, 64),
    Case("resnet50", 96, 16),
    Case("densenet121", 64, 16),
    Case("inception-v3", 96, 16, {"auxiliary": False}),  # torchvision's auxiliary head wants 299 pixels
    Case("vit-tiny/16", 224, 8),
)


@dataclass(frozen=True)
class Step(Pair):
    """A training step, with the fraction of the machine's peak that ours reaches."""

    fraction: float


def rows(runs: int = 11, memory_runs: int = 3) -> list[tuple[Pair, float]]:
    """Every case with the most that its ratio may be, and the geometric mean over the cases."""
    steps = [training(case, runs) for case in CASES]
    found: list[tuple[Pair, float]] = [(step, 1.0) for step in steps]
    found.append((mean(f"step: geometric mean of the {len(steps)}", steps), 0.95))
    if torch.cuda.is_available():
        found += [(training(case, runs, "cuda"), 1.0) for case in CASES]
    found += [(memory(case, memory_runs), 1.0) for case in CASES]
    return found + [inference(case, batch, runs) for case in CASES for batch in (1, 32)]


# --- the two sides ------------------------------------------------------------------------------------------------


def ours(case: Case, device: str = "cpu", learns: bool = True) -> tuple[nn.Module, DeviceContext]:
    """Our network where the trainer would put it, or else where it would be asked."""
    model = case.model()
    place = select_device(device, "auto" if device == "cuda" else "float32", None, model)
    return place.model(model, learns), place


def theirs(case: Case) -> nn.Module:
    """torchvision's network with the same weights."""
    model = case.model()
    models = torchvision().models
    if case.preset == "vit-tiny/16":  # torchvision has its class, and no builder; the names are those of the others
        named = "vit-base/16"
        peer = models.VisionTransformer(case.size, 16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768)
    else:
        named = case.preset
        heads = getattr(model.config, "auxiliary", None)
        options = {} if heads is None else {"aux_logits": heads, "init_weights": False}
        peer = getattr(models, torchvision_names()[named])(**options)
    peer.load_state_dict({torchvision_key(named, k): v for k, v in model.state_dict().items()})
    return peer


def examples(batch: int, case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Images, classes, and the order in which a step takes them, always the same."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, case.size, case.size, generator=generator)
    return images, torch.randint(0, 1000, (batch,), generator=generator), torch.randperm(batch, generator=generator)


# --- training -----------------------------------------------------------------------------------------------------


def our_step(case: Case, device: str = "cpu") -> Callable[[], object]:
    """One step of ours each time it is called; it begins with cutting the batch out of the data."""
    model, place = ours(case, device)
    (optimizer,) = build_optimizers(model, TrainSettings(optimizer="momentum", lr=RATE, weight_decay=0.0))
    x, y, chosen = _on(device, *examples(_batch(case, device), case))

    def step() -> None:
        (images,), target = place.batch(Batch((x[chosen],), y[chosen]))
        _step(model, optimizer, images, target, place.autocast())
        _wait(device)

    return step


def their_step(case: Case, device: str = "cpu") -> Callable[[], object]:
    """One step of torchvision's each time it is called."""
    model = theirs(case).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=TrainSettings().momentum)
    x, y, chosen = _on(device, *examples(_batch(case, device), case))

    def step() -> None:
        half = torch.autocast(device, dtype=torch.bfloat16) if device == "cuda" else nullcontext()
        _step(model, optimizer, x[chosen], y[chosen], half)
        _wait(device)

    return step


def training(case: Case, runs: int, device: str = "cpu") -> Step:
    """A step of ours beside one of torchvision's."""
    batch = _batch(case, device)
    where = "" if device == "cpu" else " in bfloat16 on the GPU"
    mine = our_step(case, device)
    pair = race(f"step: {case}, batch {batch}{where}", mine, their_step(case, device), runs)
    return Step(**vars(pair), fraction=fraction_of_peak(mine, operations(case, batch), device))


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    precision: AbstractContextManager[object],
) -> None:
    model.train()
    optimizer.zero_grad()
    with precision:
        logits, *auxiliary = as_output_tuple(model(x))
        loss = F.cross_entropy(logits, y) + sum(AUXILIARY_WEIGHT * F.cross_entropy(a, y) for a in auxiliary)
    loss.backward()
    optimizer.step()


def operations(case: Case, batch: int) -> int:
    """Floating-point operations of a training step: two a multiply-add, forward, and as many again for the gradient
    of the inputs and of the weights. Auxiliary heads are left out, so of those networks it is a little more."""
    with torch.device("meta"):
        table = layer_table(case.model(), torch.empty(1, 3, case.size, case.size))
    return 2 * 3 * batch * table.multiply_adds


def fraction_of_peak(step: Callable[[], object], count: int, device: str) -> float:
    """Operations a second in the step by those in a large matrix product of its precision, in turn: the median, since
    a machine's speed drifts by more than what is to be seen."""
    side = SIDE[device]
    a = torch.rand(side, side, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)

    def product() -> None:
        torch.mm(a, a)
        _wait(device)

    pair = race("", step, product)
    return count / (2 * side**3) / pair.ratio


def mean(name: str, pairs: list[Step]) -> Pair:
    """The geometric means of the columns of several rows."""
    of = statistics.geometric_mean
    columns = {f.name: of([getattr(p, f.name) for p in pairs]) for f in dataclasses.fields(Pair)[1:-1]}
    return Pair(name, **columns, runs=pairs[0].runs)


def _batch(case: Case, device: str) -> int:
    return case.batch if device == "cpu" else case.batch * GPU_BATCHES


def _on(device: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.to(device) for x in tensors)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# --- memory -------------------------------------------------------------------------------------------------------


def memory(case: Case, runs: int) -> Pair:
    """The most memory that a process takes for two steps, in bytes instead of seconds."""
    peaks = [(_peak(case, "ours"), _peak(case, "theirs")) for _ in range(runs)]
    ratios = sorted(a / b for a, b in peaks)
    medians = [statistics.median(side) for side in zip(*peaks)]
    name = f"memory: {case}, batch {case.batch}"
    return Pair(name, *medians, statistics.median(ratios), ratios[0], ratios[-1], runs)


def _peak(case: Case, side: str) -> float:
    words = [sys.executable, "-m", "benchmarks.vision", case.preset, side]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _print_peak(name: str, side: str) -> None:
    """What the process of `memory` does."""
    torchvision()  # a part of both sides' memory
    case = next(c for c in CASES if c.preset == name)
    step = our_step(case) if side == "ours" else their_step(case)
    release_memory()  # what building gave back is nobody's
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    step()
    step()
    # Not getrusage: its peak begins with that of the process that this one was forked from.
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmHWM"))
    print(int(line.split()[1]) * 1024)


# --- inference ----------------------------------------------------------------------------------------------------


def inference(case: Case, batch: int, runs: int) -> tuple[Pair, float]:
    """Logits of a batch, ours folded where there is batch normalization, and then to be faster."""
    x, y, _ = examples(batch, case)
    model, place = ours(case, learns=False)
    folded, peer = fold_batch_norm(model, x), theirs(case).eval()
    calls = max(1, 8 // batch)  # one image alone is done too soon to be timed

    def mine() -> None:
        for _ in range(calls):
            (images,), _ = place.batch(Batch((x,), y))
            folded(images)

    def other() -> None:
        for _ in range(calls):
            peer(x)

    with torch.inference_mode():
        assert difference(folded(x), peer(x)) < 1e-4  # it is the same network
        pair = race(f"inference: {case}, batch {batch}", mine, other, runs)
    fewer = len(_norms(folded)) < len(_norms(model))
    one = dataclasses.replace(pair, ours=pair.ours / calls, peer=pair.peer / calls)
    return one, 0.9 if fewer else 1.0


def _norms(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]


if __name__ == "__main__":
    _print_peak(*sys.argv[1:])
