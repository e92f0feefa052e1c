"""Simulation of one training step: the real loop, model and optimizer on fake tensors, which have shapes but no data.

It gives the memory of a step to the byte, also for models that do not fit on this machine. The batch is real: masks,
lengths and targets have values, so that the network takes its usual path.

A tracker of live memory and compute sees every operation that PyTorch runs (`TorchDispatchMode`), on real tensors or
`FakeTensor`s. A storage is counted once, from its creation until it is freed. Memory that a kernel allocates and frees
internally is not seen, except for that reported by `internal_bytes`. PyTorch's `MemTracker`, with which tests compare,
rejects sparse tensors, and does not separate outputs from activations or see what oneDNN's recurrent layers keep.
"""

from __future__ import annotations

import copy
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..core.errors import IncompatibleSettingError, ModelError
from ..data.dataset_base import Batch
from ..inspect.costs import multiply_adds, op_name
from .batches import largest_batch
from .device import DeviceContext
from .objectives.choice import OBJECTIVES
from .optim import find_blocks
from .setup import TrainingSetup
from .trainer import Trainer, silent_trainer

STAYS = 0.01  # fraction of the peak


class NeedsRealValues(ModelError):
    """Raised if a network needs real values in its forward pass and has none."""


@dataclass(frozen=True)
class BlockMemory:
    """Memory of a block's activations for the backward pass, in bytes."""

    keeps: int  # all activations
    products: int  # those that are results of matrix products, convolutions and attention
    gives: int  # the output


@dataclass(frozen=True)
class StepProfile:
    """Memory and compute of a step in one process."""

    examples: int  # of the batch
    tokens: int  # of the batch: positions of sequences, else examples
    peak: Mapping[str, int]  # bytes by kind (`tracker.KINDS`) at the peak
    of_batch: Mapping[str, int]  # bytes by kind at the peak of the batch's own tensors
    gradients: int  # bytes of all gradients after the backward pass
    flops: int  # of products, two for each multiply-add, forward and backward
    moved: int  # bytes that operations read and write
    kernels: int  # operations that are not views
    blocks: tuple[BlockMemory, ...]
    imagined: bool  # simulated on fake tensors, else run on this machine
    not_counted: tuple[str, ...]  # operations with unknown FLOPs
    accumulates: bool = False  # whether gradients are accumulated over batches

    @property
    def total(self) -> int:
        """Return the bytes at the peak."""
        return sum(self.peak.values())


def simulate_step(ready: TrainingSetup, parts: int = 1, gpu: bool = False) -> StepProfile:
    """Simulate the largest step of a training, or the part of one of `parts` processes with its share of the batch.

    On a `gpu` attention keeps no weights, with dropout too, and larger chunks of logits are held. `ready.model` may be
    on the meta device. Raises NeedsRealValues if the network needs real values and has none, and SettingError for an
    objective whose steps cannot be traced.
    """
    if not is_traceable(ready):
        raise IncompatibleSettingError(
            f"objective={ready.settings.objective} takes second derivatives, whose steps are not planned: "
            "`cutaway check` times them here, and estimates their memory."
        )
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.setLevel(logging.CRITICAL)  # it reports unsupported operations, which are handled below
    try:
        return _step(ready, parts, gpu, imagined=True)
    except (RuntimeError, TypeError) as error:  # sparse matrices, or data-dependent control flow
        if any(x.is_meta for x in ready.model.parameters()):
            raise NeedsRealValues(
                f"{ready.preset.name} asks for numbers on its way, so a step of it is to be made on this machine to be "
                "planned, and it does not fit here: plan a smaller one."
            ) from error
        return _step(ready, parts, gpu, imagined=False)


def is_traceable(ready: TrainingSetup) -> bool:
    """Return whether the steps of this training can be traced."""
    return OBJECTIVES[ready.settings.objective].weighable


def _step(ready: TrainingSetup, parts: int, gpu: bool, imagined: bool) -> StepProfile:
    """Run a step under the memory tracker, on fake tensors if `imagined`, else on a copy of the model."""
    ledger = MemoryTracker()
    place = ready.place
    if imagined:
        model = to_fake(ready.model, place)
        place = _FakeContext(**{field.name: getattr(place, field.name) for field in fields(place)})
    else:
        model = copy.deepcopy(ready.model)
    with ledger, torch.random.fork_rng(), _FusedAttention() if gpu else nullcontext():
        for x in (*model.parameters(), *model.buffers()):
            ledger.count(x, "weights")
        trainer = _trainer(replace(ready, model=model, place=place), ledger)
        if chunked_head := getattr(trainer.objective, "chunked_head", None):
            chunked_head.gpu = gpu
        index = largest_batch(ready.data.splits["train"], ready.settings)
        index = index[: -(-len(index) // parts)]
        batch, passes = _batch(ready, index), min(2, ready.settings.accumulate)
        trainer.plan = [index] * passes
        for x in (*batch.inputs, batch.target):
            ledger.count(x, "activations")
        with ledger.watching(trainer.model, find_blocks(trainer.model)), _count_logits_apart(trainer, ledger):
            for _ in range(2):
                before = ledger.now["activations"]
                ledger.begin()
                trainer.state.batch = 0
                trainer.step([batch] * passes, steps=1000)
                trainer.call("on_step_end")
                if ledger.now["activations"] - before < STAYS * ledger.peak.total():
                    break  # else the step cached something, such as a sorted graph: repeat it
    return StepProfile(
        len(index),
        _tokens(batch),
        {kind: ledger.peak[kind] for kind in KINDS},
        {kind: ledger.of_batch[kind] for kind in KINDS},
        gradients=ledger.now["gradients"],
        flops=ledger.flops // passes * ready.settings.accumulate,
        moved=ledger.moved // passes * ready.settings.accumulate,
        kernels=ledger.kernels // passes * ready.settings.accumulate,
        blocks=tuple(BlockMemory(one["keeps"], one["products"], one["gives"]) for one in ledger.blocks),
        imagined=imagined,
        not_counted=tuple(sorted(ledger.not_counted)),
        accumulates=passes > 1,
    )


class _FakeContext(DeviceContext):
    """Device context for fake tensors, whose losses cannot be read."""

    @property
    def reads_loss_every_step(self) -> bool:
        return False

    def model(self, model: nn.Module, learns: bool = True) -> nn.Module:
        return model


def to_fake(model: nn.Module, place: DeviceContext) -> nn.Module:
    """Return a copy of the model with fake tensors, which take no memory. Tensors that share storage still share it."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found: dict[int, Any] = {}

    def imagine(x: Tensor) -> Tensor:
        dtype = place.dtype if x.is_floating_point() else x.dtype
        shape = torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="meta")
        fake: Tensor = mode.fake_tensor_converter.from_meta_and_device(mode, shape, torch.device("cpu"))
        return nn.Parameter(fake, x.requires_grad) if isinstance(x, nn.Parameter) else fake

    for x in (*model.parameters(), *model.buffers()):
        found.setdefault(id(x), imagine(x))
    copied = copy.deepcopy(model, found)  # `found` serves as the memo of copies
    if place.channels_last:
        for conv in (m for m in copied.modules() if isinstance(m, nn.Conv2d)):
            conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
    return copied


def _trainer(ready: TrainingSetup, ledger: MemoryTracker) -> Trainer:
    trainer = silent_trainer(ready)
    trainer.state.update = 1  # the loss is read before the first update
    ledger.kind = "optimizer"
    for parameter in (p for p in trainer.model.parameters() if p.requires_grad):
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in trainer.optimizers:
        optimizer.step()  # creates the optimizer state
        optimizer.zero_grad()
        optimizer.register_step_pre_hook(lambda *_: setattr(ledger, "kind", "optimizer"))
    return trainer


@contextmanager
def _count_logits_apart(trainer: Trainer, ledger: MemoryTracker) -> Iterator[None]:
    """Count logits separately if the loss computes the head in chunks."""
    chunked_head: Any = trainer.objective.chunked_head
    if chunked_head is None:
        yield
        return
    features = chunked_head.features

    def noted(*inputs: Tensor) -> Tensor:
        ledger.kind = "activations"
        seen: Tensor = features(*inputs)
        ledger.kind = "outputs"
        return seen

    chunked_head.features = noted
    try:
        yield
    finally:
        chunked_head.features = features


def _batch(ready: TrainingSetup, index: Tensor) -> Batch:
    return next(iter(ready.data.splits["train"].batches([index], seed=0)))


def _tokens(batch: Batch) -> int:
    """Return the number of positions in a batch of token ids (N, T), or of examples in other batches."""
    first = batch.inputs[0]
    return first.numel() if first.ndim == 2 and not first.is_floating_point() else len(first)


class _FusedAttention(TorchFunctionMode):
    """Function mode without dropout in attention, since the fused kernels of GPUs support it and the CPU's does not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            if len(args) > 4:  # query, key, value, attn_mask, dropout_p
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


# --- memory tracker -----------------------------------------------------------------------------------------------

INDEXING_OPERATIONS = ("index", "index_put", "_unsafe_index", "_index_put_impl")


def run_operation(op: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run the operation, with corrections for what `FakeTensor` does not support."""
    name = op_name(op)
    result = op(*(_masks_to_indices(args) if name in INDEXING_OPERATIONS else args), **kwargs)
    if name == "mkldnn_rnn_layer" and isinstance(result[0], FakeTensor):
        return (*result[:3], result[3].new_empty(_workspace(op, args)))
    return result


def internal_bytes(op: OpOverload, args: Any) -> int:
    """Return the bytes that a kernel allocates internally, if they are many.

    The backward pass of a recurrent layer holds the gradients of all gates at all steps, (T, N, 4 · hidden).
    """
    if op_name(op) != "mkldnn_rnn_layer_backward":
        return 0
    x, weight = args[:2]  # (T, N, F), (4 · hidden, F)
    return int(x.shape[0] * x.shape[1] * weight.shape[0] * x.element_size())


def _masks_to_indices(args: Any) -> Any:
    """Return the arguments with index tensors in place of masks.

    The number of True values in a mask is known from the real batch, but not from a fake tensor.
    """
    indices: list[Tensor | None] = []
    for index in args[1]:
        mask = index is not None and index.dtype is torch.bool and not isinstance(index, FakeTensor)
        with unset_fake_temporarily():
            indices += index.nonzero(as_tuple=True) if mask else [index]
    return (args[0], indices, *args[2:])


def _workspace(op: OpOverload, args: Any) -> int:
    """Return the bytes that oneDNN keeps of a recurrent layer for its backward pass.

    They are linear in the number of steps, and are measured with sequences of one and two steps.
    """
    x, *held = args[:7]  # (T, N, F); weights and states
    held = [torch.zeros(h.shape) for h in held]

    def workspace_bytes(steps: int) -> int:
        return int(op(torch.zeros(steps, *x.shape[1:]), *held, *args[7:])[3].nbytes)

    one, two = workspace_bytes(1), workspace_bytes(2)
    return int((one + (len(x) - 1) * (two - one)) * x.element_size() // torch.float32.itemsize)


KINDS = ("weights", "casts", "gradients", "optimizer", "activations", "outputs", "working")
OF_PRODUCTS = ("mm", "mv", "conv", "attention", "rnn", "sparse")  # parts of the names of matrix products
PRODUCTS = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
    "linear",
)  # operations whose results selective recomputation keeps


class MemoryTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class has no types
    """Dispatch mode that counts live bytes by kind, now and at the peak, and total operations, bytes and kernels.

    The kinds are: weights, with buffers and a moving average; `casts`, weights in the number format of products;
    gradients; optimizer state; activations, with the batch; outputs, with tensors that the loss computes from them; and
    `working`, temporary tensors of the backward pass. There are two peaks: that of all kinds, and that of the last
    three, which depend on the batch.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind = "weights"  # kind of the tensors created now
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.of_batch: Counter[str] = Counter()  # at the peak of the batch's own tensors
        self.flops = self.moved = self.kernels = 0
        self.not_counted: set[str] = set()  # operations with unknown multiply-adds
        self.blocks: list[Counter[str]] = []  # bytes of each block: kept, products among them, output
        self._alive: dict[int, tuple[str, int, weakref.ref[Any]]] = {}  # by address of the storage
        self._inside: Counter[str] | None = None
        self._forward = True  # until the first backward pass begins
        self._most = self._most_of_batch = 0

    # --- live memory ------------------------------------------------------------------------------------------

    def count(self, x: Tensor, kind: str) -> None:
        """Count the tensor's storage as that kind from now on."""
        for part in _strided_parts(x):
            storage = part.untyped_storage()
            address = storage._cdata
            if address in self._alive:
                was, size, reference = self._alive[address]
                self.now[was] -= size
                self._alive[address] = (kind, size, reference)
            else:
                size = storage.nbytes()
                self._alive[address] = (kind, size, weakref.ref(storage, self._freed(address)))
            self.now[kind] += size

    def _update_peaks(self, passing: int = 0) -> None:
        """Update the peaks with the live bytes and those that a kernel holds internally."""
        now = self.now
        of_batch = passing + now["activations"] + now["outputs"] + now["working"]
        total = of_batch + now["weights"] + now["casts"] + now["gradients"] + now["optimizer"]
        if total > self._most or of_batch > self._most_of_batch:
            found = now + Counter(working=passing)
            if total > self._most:
                self._most, self.peak = total, found
            if of_batch > self._most_of_batch:
                self._most_of_batch, self.of_batch = of_batch, found

    def _freed(self, address: int) -> Callable[[Any], None]:
        def freed(reference: Any) -> None:
            kind, size, known = self._alive[address]
            if known is reference:  # the address may have been reused
                del self._alive[address]
                self.now[kind] -= size

        return freed

    def begin(self) -> None:
        """Reset the counts of compute and the peaks, but not the live tensors."""
        self.kind, self._forward, self.blocks = "activations", True, []
        self._most = self._most_of_batch = 0
        self.flops = self.moved = self.kernels = 0

    # --- compute ---------------------------------------------------------------------------------------

    def __torch_dispatch__(self, op: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count its results."""
        kwargs = kwargs or {}
        if op.namespace == "prim":  # queries such as a tensor's device
            return op(*args, **kwargs)
        self._update_peaks()
        result = run_operation(op, args, kwargs)
        backward = torch._C._current_graph_task_id() != -1
        self._forward = self._forward and not backward
        kind = "working" if backward else "casts" if self._is_weight_cast(op, args) else self.kind
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        for x in made:
            for part in _strided_parts(x):
                if part.untyped_storage()._cdata not in self._alive:
                    self.count(part, kind)
                    if self._inside is not None and kind != "casts":
                        self._count_in_block(op, part)
        # Autograd accumulates gradients in place, but not under a dispatch mode.
        if not (backward and op is torch.ops.aten.add.Tensor):
            self._update_peaks(internal_bytes(op, args))
        if not op.is_view and made:
            read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            self.moved += sum(part.nbytes for x in (*read, *made) for part in _strided_parts(x))
            self.kernels += 1
            self.flops += self._flops(op, args, result)
        return result

    def _is_weight_cast(self, op: OpOverload, args: Any) -> bool:
        """Return whether the operation converts a weight to another number format."""
        if op_name(op) != "_to_copy":
            return False
        return self._alive.get(args[0].untyped_storage()._cdata, ("",))[0] == "weights"

    def _flops(self, op: OpOverload, args: Any, result: Any) -> int:
        """Return the floating-point operations, two for each multiply-add."""
        if (cost := BACKWARD.get(op_name(op))) is not None:
            return 2 * cost(args)
        found = multiply_adds(op, args, result)
        if found is None and not op_name(op).endswith("_backward") and any(word in op_name(op) for word in OF_PRODUCTS):
            self.not_counted.add(op_name(op))
        return 2 * (found or 0)

    # --- parts of the model -------------------------------------------------------------------------------------

    @contextmanager
    def watching(self, model: nn.Module, blocks: list[nn.Module]) -> Iterator[None]:
        """Track activations, outputs and gradients of the model separately, and the memory that each block keeps."""

        def entering(module: nn.Module, args: Any) -> None:
            self.kind = "activations"

        def leaving(module: nn.Module, args: Any, result: Any) -> None:
            for x in tree_leaves(result):
                if isinstance(x, Tensor):
                    self.count(x, "outputs")
            self.kind = "outputs"

        def entering_block(module: nn.Module, args: Any) -> None:
            if self._forward:
                self.blocks.append(Counter())
                self._inside = self.blocks[-1]

        def leaving_block(module: nn.Module, args: Any, result: Any) -> None:
            if self._inside is not None:
                self._inside["gives"] = sum(x.nbytes for x in tree_leaves(result) if isinstance(x, Tensor))
            self._inside = None

        def has_gradient(parameter: Tensor) -> None:
            if parameter.grad is not None:
                self.count(parameter.grad, "gradients")

        handles = [model.register_forward_pre_hook(entering), model.register_forward_hook(leaving)]
        for block in blocks:
            handles += [block.register_forward_pre_hook(entering_block), block.register_forward_hook(leaving_block)]
        for parameter in (p for p in model.parameters() if p.requires_grad):
            handles.append(parameter.register_post_accumulate_grad_hook(has_gradient))  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _count_in_block(self, op: OpOverload, x: Tensor) -> None:
        """Count a result of the current block until it is freed."""
        inside, storage = self._inside, x.untyped_storage()
        assert inside is not None
        size = storage.nbytes()
        keys = ["keeps"]
        if op_name(op) in PRODUCTS or op_name(op).startswith("_scaled_dot_product"):
            keys.append("products")
        inside.update(dict.fromkeys(keys, size))

        def freed() -> None:
            if self._forward:
                inside.subtract(dict.fromkeys(keys, size))

        weakref.finalize(storage, freed)


def _strided_parts(x: Tensor) -> list[Tensor]:
    """Return the tensor, or the parts of a sparse tensor, in a list."""
    if x.layout is torch.strided:
        return [x]
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout is torch.sparse_csr:
        return [x.crow_indices(), x.col_indices(), x.values()]
    return []


def _convolution_backward(args: Any) -> int:
    """Return twice the forward pass: for the gradients of the input, if needed, and of the kernel."""
    gradient, x, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    places = (x if transposed else gradient).numel()
    return int((wanted[0] + wanted[1]) * places * weight[0].numel())


def _attention_backward(args: Any) -> int:
    """Return four products, where the forward pass has two."""
    q, k, v = args[1:4]
    return int(2 * q.numel() // q.shape[-1] * k.shape[-2] * (q.shape[-1] + v.shape[-1]))


def _recurrent_backward(args: Any) -> int:
    """Return twice the forward pass."""
    return int(2 * args[0].shape[0] * args[0].shape[1] * sum(w.numel() for w in args[1:3]))


BACKWARD: dict[str, Callable[[Any], int]] = {
    "convolution_backward": _convolution_backward,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
    **{
        f"_scaled_dot_product_{kernel}_backward": _attention_backward
        for kernel in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
    },
}
