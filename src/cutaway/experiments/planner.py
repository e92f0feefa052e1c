"""Plan of a training before it starts: memory, time and cost of each strategy, dry runs, and a check of the data.

A step is traced with shapes only, so that the model may be larger than this machine. Nothing is trained or written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.deferred_init import copy_to_meta
from ..core.config import build, field_names, pick, unknown_setting
from ..core.errors import DataError, IncompatibleSettingError, ModelError, SettingError
from ..core.log import log
from ..core.memory_budget import format_bytes
from ..data.findings import REPAIR
from ..data.images.dataset import find_damaged
from ..data.settings import DataSettings
from ..data.streaming.media_shards import damaged_shards
from ..data.streaming.shards import is_prepared, unusable_shards_error
from ..distributed.dry_run import DryRun, dry_run
from ..draw.number_format import plural
from ..inspect.layers import LayerTable, layer_table
from ..nn.transformer import is_block
from ..runs.train import set_epochs_from_steps
from ..training.batches import batch_examples, epoch_batches, largest_batch
from ..training.config import TrainSettings
from ..training.cost_estimate import Estimate, estimate_cost
from ..training.memory import (
    ProcessMemory,
    WeightLayout,
    available_bytes,
    bytes_sent,
    num_shards,
    process_memory,
    reject_step_beyond_memory,
    weight_layout,
)
from ..training.objectives.choice import build_objective, total_epochs
from ..training.optim import build_optimizers, find_blocks
from ..training.parallel import DISTRIBUTED_OBJECTIVES, checkpointed, reject_small_batches, requires_whole_weights
from ..training.proposal import propose_model
from ..training.setup import TrainingSetup, setup_training
from ..training.simulated_step import NeedsRealValues, StepProfile, is_traceable, run_operation, simulate_step
from .settings import GIB, PARALLELISM_SETTINGS, Gpu, PlanSettings, find_gpu, reject_invalid_hardware

KERNEL_LAUNCH_SECONDS = 25e-6  # seconds to launch an operation's kernels in eager PyTorch, measured with an H200
RECOMPUTE_FACTOR = {
    "none": 1.0,
    "selective": 1.0,
    "full": 4 / 3,
}  # factor of operations: recomputation repeats the forward pass
HOUR = 3600
StepTimer = Callable[
    [StepProfile, str, WeightLayout], tuple[float | None, str]
]  # seconds of a step of a strategy, and its bottleneck


@dataclass(frozen=True)
class Strategy:
    """Memory, time and cost of one strategy. Times are None if the speed of the hardware is unknown."""

    name: str
    devices: int
    examples: int  # of a step on each device
    memory: ProcessMemory
    room: float | None  # usable bytes of each device; None if unknown
    seconds_per_step: float | None
    bound: str  # bottleneck of the step: computing, memory, kernels or communication
    seconds_per_epoch: float | None
    seconds: float | None  # of the whole training
    cost: float | None

    @property
    def fits(self) -> bool:
        """Return whether it fits into the memory of each device."""
        return self.room is None or self.memory.total <= self.room


@dataclass(frozen=True)
class Plan:
    """Plan of a training, with each possible strategy."""

    model: str
    data: str
    device: str  # the GPU or this machine
    parameters: int
    batch: int  # examples of a step over all devices
    tokens: int  # tokens of that step; examples, if there are no sequences
    steps_per_epoch: int
    steps: int
    epochs: int
    flops: float  # of a step over all devices
    strategies: tuple[Strategy, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    dry_runs: Mapping[str, DryRun] = field(default_factory=dict)  # by strategy, if requested

    @property
    def best(self) -> Strategy | None:
        """Return the fastest strategy that fits, then that with the fewest devices and the least memory.

        None if none fits.
        """
        fitting = [s for s in self.strategies if s.fits]
        return min(fitting, key=lambda s: (s.seconds or 0.0, s.devices, s.memory.total), default=None)

    def __getitem__(self, name: str) -> Strategy:
        """Return the strategy of that name."""
        return {s.name: s for s in self.strategies}[name]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values in bytes, seconds and the currency of the price."""
        document = asdict(self)
        for strategy, found in zip(self.strategies, document["strategies"]):
            found["memory"]["total"] = strategy.memory.total
            found["fits"] = strategy.fits
        for name, run in self.dry_runs.items():
            for share, found in zip(run.shares, document["dry_runs"][name]["shares"]):
                found["total"] = share.bytes
        return {**document, "best": self.best and self.best.name}


def plan(model: str | nn.Module, source: Any, given: Mapping[str, Any]) -> Plan:
    """Plan a training. The settings of `PlanSettings` define the hardware.

    No training result is kept, and nothing runs on the planned GPUs. The model may be larger than this machine.
    """
    known = field_names(PlanSettings, TrainSettings, DataSettings)
    for key in given:
        if key not in known and not key.startswith("model."):
            raise unknown_setting(key, known)
    own = pick(given, PlanSettings)
    asked = build(PlanSettings, own)
    shared = build(TrainSettings, {key: given[key] for key in PARALLELISM_SETTINGS if key in given})
    rest = {key: value for key, value in given.items() if key not in (*own, *PARALLELISM_SETTINGS)}
    reject_invalid_hardware(asked, own, shared)
    if asked.gpu is None:
        return _plan_local(model, source, rest, asked, shared)
    gpu = find_gpu(asked.gpu)
    try:
        return _plan_on_gpu(model, source, rest, asked, shared, gpu)
    except NeedsRealValues:
        return _plan_on_gpu(model, source, rest, asked, shared, gpu, shapes=False)


def _plan_local(
    model: str | nn.Module, source: Any, given: Mapping[str, Any], asked: PlanSettings, shared: TrainSettings
) -> Plan:
    """Plan for this machine. A few steps are measured if they fit."""
    try:
        ready = setup_training(model, source, given)
    except ModelError:  # too large for this machine, otherwise it is raised again
        ready = setup_training(model, source, given, shapes=True)
    return plan_here(ready, given, asked, shared)


def plan_here(
    ready: TrainingSetup,
    given: Mapping[str, Any],
    asked: PlanSettings,
    shared: TrainSettings,
    measured: Estimate | None = None,
) -> Plan:
    """Plan a prepared training on this machine. `measured` is the estimate from a few of its steps, if available."""
    set_epochs_from_steps(ready, given)
    device, processes = ready.place.device, shared.processes
    there = any(x.is_meta for x in ready.model.parameters())
    room = available_bytes(ready.model, device, ready.settings, processes if device.type == "cpu" else 1)

    def timed(step: StepProfile, strategy: str, weights: WeightLayout) -> tuple[float | None, str]:
        return (None, "") if measured is None else (RECOMPUTE_FACTOR[shared.recompute] * measured.seconds_per_step, "")

    costs = CostModel(ready, asked, shared, processes, processes, room)
    found = costs.strategies(timed)
    if measured is None and found[0].fits and not there:
        measured = estimate_cost(ready)
        found = costs.strategies(timed)
    if measured is not None:
        said = "The time of a step is measured here, in one process."
        if processes > 1:
            said += f" The {processes} processes share this machine's cores, so no speedup is assumed."
    else:
        said = "The step is not measured: it does not fit into memory."
    return costs.plan(f"this machine ({device})", found, [said])


def _plan_on_gpu(
    model: str | nn.Module,
    source: Any,
    given: Mapping[str, Any],
    asked: PlanSettings,
    shared: TrainSettings,
    gpu: Gpu,
    shapes: bool = True,
) -> Plan:
    """Estimate memory, time and cost on GPUs that this machine does not have. Nothing is run on them."""
    precision = str(given.get("precision", "auto"))
    if precision in ("float32", "float64") and asked.peak is None:
        raise IncompatibleSettingError(
            f"precision={precision}: only the bfloat16 peak of {gpu.name} is known. Set peak=TFLOP/s for that "
            "precision, or leave precision out."
        )
    rest = {key: value for key, value in given.items() if key not in ("device", "precision")}
    if precision == "float64":
        rest["precision"] = precision
    ready = setup_training(model, source, {**rest, "device": "cpu"}, shapes=shapes)
    half = torch.bfloat16 if precision in ("auto", "bfloat16") else None
    ready.place = replace(ready.place, autocast_dtype=half)
    set_epochs_from_steps(ready, given)
    peak = asked.peak * 1e12 if asked.peak else gpu.peak
    memory = asked.gpu_memory * GIB if asked.gpu_memory else gpu.memory
    node = min(asked.gpus, asked.gpus_per_node)
    recompute_factor = RECOMPUTE_FACTOR[shared.recompute]

    def timed(step: StepProfile, strategy: str, weights: WeightLayout) -> tuple[float, str]:
        shared_by = 1 if strategy == "one" else shared.tensor_parallel
        within, between = bytes_sent(strategy, step, weights, asked.gpus, node, shared_by)
        seconds = {
            "computing": recompute_factor * step.flops / shared_by / (peak * asked.utilization),
            "memory": recompute_factor * step.moved / shared_by / gpu.bandwidth,
            "kernels": recompute_factor * step.kernels * KERNEL_LAUNCH_SECONDS,
            "communication": within / gpu.link + between / (asked.network * 1e9),
        }
        bound = max(seconds, key=lambda key: seconds[key])
        return seconds[bound], bound

    room = (ready.settings.memory_fraction or math.inf) * memory
    costs = CostModel(ready, asked, shared, asked.gpus, node, room)
    said = [
        (
            f"{gpu.name}: {peak / 1e12:.4g} TFLOP/s, with an assumed utilization of {asked.utilization:.0%} "
            f"(utilization=); {memory / GIB:.3g} GiB, of which {ready.settings.memory_fraction or 1:.0%} may be taken; "
            f"{gpu.bandwidth / 1e12:.3g} TB/s of memory; {KERNEL_LAUNCH_SECONDS * 1e6:g} µs to start each kernel, "
            "without compile."
        ),
        "The time of a step is the maximum of compute, memory access, kernel launches and communication.",
    ]
    if asked.gpus > 1:
        said.append(
            f"Links: {gpu.link / 1e9:g} GB/s within a machine of {asked.gpus_per_node}, {asked.network:g} between "
            "machines, each way (network=); communication overlaps with compute."
        )
    if shared.tensor_parallel > 1:
        said.append(
            f"The matrices of blocks are split over {shared.tensor_parallel} devices, and their activations by the "
            "formula of V. Korthikanti et al.: 10/34 of them are replicated."
        )
    return costs.plan(f"{asked.gpus} × {gpu.name}", costs.strategies(timed), said)


class CostModel:
    """Costs of a training for several strategies on a number of devices, `node` of them in each machine."""

    def __init__(
        self,
        ready: TrainingSetup,
        asked: PlanSettings,
        shared: TrainSettings,
        devices: int,
        node: int,
        room: float | None,
    ) -> None:
        """Compute what all strategies share. Raises SettingError for settings that the model does not support."""
        self.ready, self.asked, self.shared, self.room = ready, asked, shared, room
        self.devices, self.node = devices, node
        self.whole_for = requires_whole_weights(ready.settings, ready.model)
        self.names = possible_strategies(shared, devices, node, self.whole_for)
        self.copies = devices // shared.tensor_parallel  # model replicas that share a batch
        self.batch = len(largest_batch(ready.data.splits["train"], ready.settings))
        called = "processes" if asked.gpu is None else "gpus"
        examples = batch_examples(ready.data.splits["train"], ready.settings)
        reject_small_batches(ready.settings, examples, devices, shared.tensor_parallel, called)
        parts = find_blocks(ready.model)
        if shared.recompute != "none" and not parts:
            raise IncompatibleSettingError(f"Invalid recompute: {ready.preset.name} has no blocks. Leave it out.")
        if shared.tensor_parallel > 1 and not any(map(is_block, parts)):
            raise IncompatibleSettingError(
                f"Invalid tensor_parallel: {ready.preset.name} is not a Transformer. Leave it out."
            )
        self.weights = weight_layout(
            ready.model, parts, ready.place.dtype, ready.place.autocast_dtype, bool(ready.settings.ema)
        )
        self.epochs = total_epochs(ready.settings, ready.data)
        an_epoch = len(epoch_batches(ready.data.splits["train"], ready.settings, epoch=0))
        self.steps_per_epoch = math.ceil(an_epoch / ready.settings.accumulate)
        self.total_steps = min(ready.settings.max_steps or math.inf, self.epochs * self.steps_per_epoch)
        self._steps: dict[int, StepProfile] = {}

    def step(self, strategy: str) -> StepProfile:
        """Return one device's part of a step with that strategy."""
        parts = 1 if strategy == "one" else self.copies
        if parts not in self._steps:
            self._steps[parts] = simulate_step(self.ready, parts, gpu=self.asked.gpu is not None)
        return self._steps[parts]

    def memory(self, strategy: str, recompute: str) -> ProcessMemory:
        """Return the memory of one device with that strategy."""
        ranks = num_shards(strategy, self.copies, self.node // self.shared.tensor_parallel)
        shared_by = 1 if strategy == "one" else self.shared.tensor_parallel
        elsewhere = self.asked.gpu is not None
        here = not elsewhere and self.ready.place.device.type == "cpu"
        step = self.step(strategy)
        return process_memory(
            strategy, step, self.weights, ranks, shared_by, recompute, reserved=elsewhere, copied=here
        )

    def strategies(self, timed: StepTimer) -> tuple[Strategy, ...]:
        """Return every strategy with its memory, time and price."""
        return tuple(self._strategy(name, timed) for name in self.names)

    def _strategy(self, name: str, timed: StepTimer) -> Strategy:
        """Return one strategy with its memory, time and price."""
        step, devices = self.step(name), 1 if name == "one" else self.devices
        seconds, bound = timed(step, name, self.weights)
        in_all = None if seconds is None else seconds * self.total_steps
        priced = in_all is not None and self.asked.price is not None
        return Strategy(
            name,
            devices,
            step.examples,
            self.memory(name, self.shared.recompute),
            self.room,
            seconds,
            bound,
            None if seconds is None else seconds * self.steps_per_epoch,
            in_all,
            (self.asked.price or 0) * devices * (in_all or 0) / HOUR if priced else None,
        )

    def plan(self, device: str, found: tuple[Strategy, ...], assumed: list[str]) -> Plan:
        """Return the plan with its notes."""
        step = self.step(self.names[-1])
        devices = 1 if self.names[-1] == "one" else self.copies
        return Plan(
            self.ready.preset.name,
            self.ready.data.source,
            device,
            sum(p.numel() for p in self.ready.model.parameters()),
            self.batch * self.ready.settings.accumulate,
            step.tokens * devices * self.ready.settings.accumulate,
            self.steps_per_epoch,
            int(self.total_steps),
            self.epochs,
            float(step.flops * devices),
            found,
            tuple(assumed),
            tuple(self._notes(step, found)),
            dry_runs(self.ready, self.shared, self.names, self.devices, self.node) if self.asked.dry_run else {},
        )

    def _notes(self, step: StepProfile, found: tuple[Strategy, ...]) -> list[str]:
        notes = []
        if self.whole_for is not None and self.devices > 1:
            notes.append(f"{self.whole_for} needs unsharded weights, so sharded strategies are not planned.")
        if not any(strategy.fits for strategy in found):
            notes.append(self._suggestion(found[-1]))
        if not step.imagined:
            notes.append("The forward pass depends on values, so a step was run on this machine to measure it.")
        if step.not_counted:
            notes.append(f"Operations that are not counted: {', '.join(step.not_counted)}.")
        return notes

    def _suggestion(self, best: Strategy) -> str:
        """Return a suggestion that makes the last strategy fit."""
        room = best.room or math.inf
        for recompute in list(RECOMPUTE_FACTOR)[list(RECOMPUTE_FACTOR).index(self.shared.recompute) + 1 :]:
            memory = self.memory(best.name, recompute)
            if memory.total <= room and self.step(best.name).blocks:
                return (
                    f"Nothing fits. With recompute={recompute}, {best.name} takes {format_bytes(memory.total)} and"
                    " fits."
                )
        memory = best.memory
        examples = int((room - memory.total + memory.of_batch) / (memory.of_batch / best.examples))
        if examples > 0:
            size = examples * (1 if best.name == "one" else self.copies)
            return (
                f"Nothing fits. {best.name} fits with batch_size={size} and accumulate="
                f"{math.ceil(self.batch / size)}, which gives the same effective batch size."
            )
        return (
            f"Nothing fits: {best.name} needs {format_bytes(memory.total - memory.of_batch)} on each device for any"
            " batch size. Use more devices or a smaller model."
        )


def possible_strategies(
    shared: TrainSettings, devices: int, node: int, whole_for: str | None = None
) -> tuple[str, ...]:
    """Return the strategies for the devices, or the requested one.

    `whole_for` names a feature that needs whole weights.
    """
    if whole_for is not None and shared.in_parts:
        asked = "tensor_parallel" if shared.tensor_parallel > 1 else f"parallel={shared.parallel}"
        raise IncompatibleSettingError(
            f"Invalid {asked}: not supported with {whole_for}, which needs unsharded weights. Leave one of them out."
        )
    parts = whole_for is None
    there = (
        "one",
        *(("ddp",) if devices > 1 else ()),
        *(("fsdp",) if devices > 1 and parts else ()),
        *(("hsdp",) if devices > node and parts else ()),
    )
    if shared.parallel == "auto":
        return there
    if shared.parallel not in there:
        several = "several machines" if shared.parallel == "hsdp" else "several devices"
        raise IncompatibleSettingError(f"Invalid parallel={shared.parallel}: needs {several}. Leave it out.")
    return (shared.parallel,)


TRACE_BATCH = 4  # batch size of the trace


@dataclass(frozen=True)
class CheckResult:
    """Result of a check. Nothing is written, and no training result is kept."""

    ready: TrainingSetup
    cost: Estimate  # seconds and bytes of an epoch
    step: StepProfile | None  # memory and operations of a step; None if they cannot be traced
    inputs: tuple[torch.Tensor, ...]  # inputs of the traced batch
    layers: LayerTable

    @property
    def findings(self) -> list[str]:
        """Return the problems of the data, in sentences."""
        return self.ready.data.findings

    @property
    def notes(self) -> list[str]:
        """Return all notes on the data and the initial weights, including findings."""
        return [*self.ready.data.notes, *(self.ready.taken.notes if self.ready.taken else ())]

    @property
    def splits(self) -> dict[str, int]:
        """Return the number of examples of each split."""
        return {name: len(split) for name, split in self.ready.data.splits.items()}

    @property
    def memory(self) -> dict[str, int]:
        """Return bytes by kind: the data, and a step at its peak as in `cutaway plan`.

        If steps cannot be traced, the values are measured over a few of them.
        """
        cost = self.cost
        if self.step is not None:
            return {"data": cost.data, **self.step.peak}
        return {
            "data": cost.data,
            "weights": cost.weights,
            "gradients and optimizer": cost.learning,
            "activations": cost.activations,
            "outputs": cost.outputs,
        }

    def __repr__(self) -> str:
        splits = ", ".join(f"{count:,} {name}" for name, count in self.splits.items())
        about = (
            f"{self.ready.preset.name} on {self.ready.data.name}: {self.ready.data.spec.kind}, {self.ready.task.name}"
        )
        return f"<Checked {about}, {splits}; {plural(len(self.findings), 'finding')}>"

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        ready = self.ready
        return {
            "model": ready.preset.name,
            "data": {
                "source": ready.data.source,
                "kind": ready.data.spec.kind,
                "shape": list(ready.data.spec.shape),
                "splits": self.splits,
                "columns": ready.data.columns,
                "findings": self.findings,
                "evidence": self.ready.data.evidence,
                "notes": self.notes,
            },
            "task": ready.task.name,
            "batch": [list(x.shape) for x in self.inputs],
            "layers": self.layers.to_json()["rows"],
            "cost": {
                "steps": self.cost.steps,
                "seconds_per_step": self.cost.seconds_per_step,
                "seconds_per_epoch": self.cost.seconds_per_epoch,
                "flops_per_step": self.step.flops if self.step else None,
                "memory": sum(self.memory.values()),
            },
            "memory": self.memory,
        }


def check(model: Any, source: Any, given: Mapping[str, Any]) -> CheckResult:
    """Read the data, build the model, trace a batch and estimate the cost. Without a model, one is proposed.

    Raises DataError for unreadable data, with every bad row or file in `problems`.
    """
    if model is None:
        proposal = propose_model(source, given)
        model = proposal.name
        log(str(proposal))
    ready = setup_training(model, source, given)
    set_epochs_from_steps(ready, given)
    damaged = damaged_shards(source) if isinstance(source, str) else []
    if problems := damaged or [p for split in ready.data.splits.values() for p in find_damaged(split)]:
        if is_prepared(source):
            raise unusable_shards_error(source, problems)
        raise DataError(
            f"{len(problems)} files in {source} cannot be read.", problems, f"{REPAIR} Nothing was changed."
        )
    reject_step_beyond_memory(ready)
    step = (
        simulate_step(ready) if is_traceable(ready) else None
    )  # before steps are timed, because those train the model
    cost = estimate_cost(ready)
    train = ready.data.splits["train"]
    batch = next(iter(train.batches([torch.arange(min(TRACE_BATCH, len(train)))])))
    inputs, _ = ready.place.batch(batch)
    return CheckResult(ready, cost, step, inputs, layer_table(ready.model, *inputs))


def dry_runs(
    ready: TrainingSetup, shared: TrainSettings, strategies: Iterable[str], devices: int, machine: int
) -> dict[str, DryRun]:
    """Return the dry run of each strategy on a number of devices, `machine` of them in each machine.

    It uses the largest batch, the loss and the optimizer of the training. Only the shapes of the weights are used.

    Raises SettingError for objectives that do not support several processes, and for networks that need values.
    """
    of_several = [name for name in strategies if name != "one"]
    if not of_several:
        raise IncompatibleSettingError("Invalid dry_run=true: needs several devices, e.g. gpus=8.")
    if ready.settings.objective not in DISTRIBUTED_OBJECTIVES:
        raise IncompatibleSettingError(
            f"Invalid dry_run=true: objective={ready.settings.objective} does not support several processes. Leave "
            "dry_run out."
        )
    return {name: _dry_run_strategy(ready, shared, name, devices, machine) for name in of_several}


def _dry_run_strategy(ready: TrainingSetup, shared: TrainSettings, strategy: str, devices: int, machine: int) -> DryRun:
    """Return the dry run of one step of `strategy` on `devices` devices, `machine` of them on each machine."""
    model, split, place = copy_to_meta(ready.model), ready.data.splits["train"], ready.place
    index = largest_batch(split, ready.settings)
    index = index[: -(-len(index) * shared.tensor_parallel // devices)]  # the share of a device, rounded up
    batch = next(iter(split.batches([index], seed=0)))

    def step(sharded: nn.Module) -> Tensor:
        objective = build_objective(sharded, ready.data, ready.task, ready.settings, split, place, ready.teacher)
        inputs, target = place.batch(batch)
        with place.autocast():
            total: Tensor = objective.loss(inputs, target, index, torch.Generator()).total
        return total

    try:
        return dry_run(
            lambda: model,
            step,
            find_blocks,
            processes=devices,
            parallel=strategy,
            tensor_parallel=shared.tensor_parallel,
            machine=machine,
            dtype=place.autocast_dtype,
            optimizers=partial(build_optimizers, settings=ready.settings),
            within=lambda: checkpointed(find_blocks(model), shared.recompute, nullcontext),
            carry_out=run_operation,
        )
    except (RuntimeError, TypeError) as error:
        raise SettingError(
            f"Invalid dry_run=true: the forward pass of {ready.preset.name} depends on values, and a dry run has "
            "shapes only. Leave dry_run out."
        ) from error
