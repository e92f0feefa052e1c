"""The training loop: epochs, steps, validation, checkpoints and resuming. Everything optional is a callback.

    for batches in epoch:            # several batches for gradient accumulation
        zero_grad()
        for batch in batches:
            loss(model(inputs), target).backward()
        clip_grad_norm()
        optimizer.step()
        callbacks: on_step_end       # averages, pruning, snapshots, progress, logs, checkpoints, yours

All random numbers follow from the seed and the position in training (the order of an epoch, the augmentation of a
batch), or are part of the checkpoint (torch's random state, for dropout). A run that was killed and resumed is
therefore bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import itertools
import math
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checkpoints.deferred_init import DeferredInit
from ..core.errors import TrainingError
from ..data.dataset_base import Augment, Batch, DataSet, Split
from ..data.samplers import Batches
from ..distributed.tensor_parallel import gather_tensors, local_part
from ..models.base import BaseModel, as_base_model
from ..tasks.classification import Classification
from ..tasks.task import HIGHER_IS_BETTER, Task
from .batches import epochs_for_steps, mix_seeds
from .callbacks import (
    AverageRecord,
    BestWeights,
    Callback,
    Checkpoints,
    EarlyStopping,
    Interruption,
    LastEpochs,
    MovingAverage,
    PerceptronConvergence,
    Progress,
    RowsWithinEpochs,
    Snapshots,
    StopSignal,
    TaskWeights,
    TimeBudget,
    add_row,
    bind_hooks,
    collect_states,
    restore_states,
    snapshot_updates,
)
from .checkpoint import TrainingState, checkpoint_tensors, latest_checkpoint, load_checkpoint, random_state
from .compression import Pruning, build_pruning
from .config import TrainSettings
from .device import DeviceContext, merge_states
from .evaluation import EVALUATION_BATCH_SIZE, evaluate_split, evaluation_batch_size
from .objectives.choice import build_objective
from .objectives.distillation import Teacher
from .optim import backbone_names, build_optimizers, lr_factor, match_frozen, set_trainable
from .output_check import find_nonfinite
from .parallel import select_strategy
from .setup import TrainingSetup

SYNC_EVERY = 50  # steps between reading losses, if reading them synchronizes the device
FIRST_IMAGES = 5000  # images for data-dependent initialization


class Trainer:
    """Training loop of one model on one data set."""

    def __init__(
        self,
        model: nn.Module,
        data: DataSet,
        task: Task,
        settings: TrainSettings,
        place: DeviceContext,
        checkpoints: Path,
        progress: Progress,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Callback] = (),
        teacher: Teacher | None = None,
        deferred: DeferredInit | None = None,
    ) -> None:
        self.spec, self.task, self.settings, self.place = data.spec, task, settings, place
        self.checkpoints = checkpoints
        self.train = place.keep_on_device(data.splits["train"])
        self.val = place.keep_on_device(data.splits["val"]) if "val" in data.splits else None
        self.augment: Augment | None = data.augment
        self.monitor = settings.monitor or task.default_monitor  # validation metric that selects the best weights
        self.higher_is_better = self.monitor in HIGHER_IS_BETTER
        self.state = TrainingState()
        self.plan: Batches = []  # example indices of each batch of the epoch, for all processes
        self.scores: dict[str, float] = {}  # of the last validation at an epoch's end
        self._losses: list[Tensor] = []  # of the steps since they were last read, still on the device
        self._inputs: tuple[Tensor, ...] = ()  # of the current step, to find a layer with non-finite values
        self._random = torch.Generator(place.device)
        self._setup_model(model, deferred)
        self.objective = build_objective(self.model, data, task, settings, self.train, place, teacher)
        self.strategy.set_loss(self.objective.loss)
        self.task_schedule = self.objective.task_schedule
        self.max_updates = epochs_for_steps(self.train, settings)[1] if settings.max_steps else math.inf
        self._setup_callbacks(progress, callbacks, loggers)

    def _setup_model(self, model: nn.Module, deferred: DeferredInit | None) -> None:
        """Set the model, its trainable parameters and their optimizers."""
        self.strategy = select_strategy(model, self.place, self.settings, deferred)
        self.model = self.strategy.model
        self.network = as_base_model(self.model)
        self._learnable = {name for name, p in self.model.named_parameters() if p.requires_grad}
        self._frozen = match_frozen(self.model, self.settings.freeze)
        set_trainable(self.model, self._learnable, self._frozen)
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(self.model, self.settings)

    def _setup_callbacks(self, progress: Progress, own: Sequence[Callback], loggers: Sequence[Callback]) -> None:
        """Set the callbacks of these settings, the user's `own`, and `loggers`, which get every row at once."""
        settings, tasks = self.settings, self.task_schedule.count > 1
        self.stop_requested = False  # whether any process got a signal
        self.average = MovingAverage(self.model, settings.ema) if settings.ema else None
        self.pruning: Pruning | None = None  # set once the weights are loaded
        self.mean: AverageRecord | None = None  # record of the averaged weights, at the end
        at = snapshot_updates(self.total_updates(), settings.snapshots) if settings.snapshots else frozenset()
        self.snapshots = Snapshots(self.checkpoints.parent, at, self.place.writes) if at else None
        self.own_callbacks = [*own]
        self.callbacks: list[Callback | None] = [
            progress,
            TaskWeights() if tasks else None,
            BestWeights(),
            LastEpochs(self.checkpoints, settings.average_epochs) if settings.average_epochs else None,
            PerceptronConvergence() if self.task.loss_name == "perceptron" else None,
            EarlyStopping(settings.patience) if settings.patience else None,
            *own,  # before what saves checkpoints, which then hold the state of these after the step
            RowsWithinEpochs(),
            *loggers,
            Interruption(),
            TimeBudget() if settings.minutes else None,
            Checkpoints(),
        ]
        self._began: float | None = None  # time at which `fit` would have begun without interruptions
        self._stop = StopSignal()
        self._bind_callbacks()

    def _bind_callbacks(self) -> None:
        """Collect the methods of callbacks. Outside of `fit` only those run that follow the weights."""
        follow_weights = [self.average, self.pruning, self.snapshots]
        callbacks = follow_weights if self._began is None else [*follow_weights, *self.callbacks]
        active = [callback for callback in callbacks if callback is not None]
        for callback in active:
            callback.trainer = weakref.proxy(self)  # so that a callback that is kept does not keep the model
        self._hooks = bind_hooks(active)

    def call(self, hook: str) -> None:
        """Call the callbacks, with the state of training."""
        for method in self._hooks[hook]:
            method(self.state)

    # --- epochs -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a new training.

        A model that is initialized from training images (`initialize_from`) gets up to 5 000 of them without
        augmentation, unless it has pretrained weights. From here on each process draws its own random numbers.
        """
        if self.place.rank:
            torch.manual_seed(mix_seeds(self.settings.seed, self.place.rank))
        self.pruning = build_pruning(self.model, self.settings, begun=self.settings.weights is not None)
        self._bind_callbacks()
        if type(self.network).initialize_from is BaseModel.initialize_from or self.settings.weights:
            return
        (batch,) = self.train.batches([torch.cat([*self.epoch_batches(0)])[:FIRST_IMAGES]])
        (images, *_), _ = self.place.batch(batch)
        with torch.no_grad():
            self.network.initialize_from(images)
        if self.average:
            self.average.load(self.model.state_dict())

    def fit(self) -> TrainingState:
        """Train from `self.state` until the epochs, updates, minutes or patience are used up.

        Raises Interrupted (after writing a checkpoint) when stopped, and TrainingError if a loss is not finite.
        """
        state = self.state
        self._began = time.perf_counter() - state.seconds
        self._bind_callbacks()
        self.call("on_train_start")
        with self._stop.listen():
            if state.batch and (
                state.stopped or state.update == self.max_updates
            ):  # interrupted as its last epoch ended
                self._end_epoch()
            while not self.finished:
                for _ in self.epoch():
                    if self.finished:
                        break
                self._end_epoch()
        self.strategy.wait_for_checkpoint()
        all_of_them = f"{state.update:,} updates" if state.update == self.settings.max_steps else "epochs"
        state.stopped = state.stopped or f"all {all_of_them} are done"
        self.call("on_train_end")
        return state

    def epoch(self) -> Iterator[bool]:
        """Run the current epoch from its current position. Yield after each update whether it was the last one."""
        state, settings = self.state, self.settings
        self.plan = self.epoch_batches(state.epoch)
        self.phase_steps = self._start_phase(math.ceil(len(self.plan) / settings.accumulate))
        if state.batch == 0:
            self.objective.hidden_state = ()
        self.call("on_epoch_start")
        shards = (self.place.shard_batch(index, self.objective.is_stateful) for index in self.plan[state.batch :])
        remaining = self.train.batches(shards, seed=mix_seeds(settings.seed, state.epoch))
        for batches in _batch_groups(remaining, settings.accumulate):
            self.step(batches, self.phase_steps)
            self._read_clock()
            self.call("on_step_end")
            yield state.batch == len(self.plan)

    def step(self, batches: list[Batch], steps: int) -> None:
        """Run one update: the gradient of the mean loss over the batches, then the optimizers' step.

        The batches are this process's share. `steps` is the number of updates of the current phase.
        """
        self._set_lr(steps)
        for parameter in self._parameters:
            parameter.grad = None  # as `optimizer.zero_grad` does, at a third of its cost
        weights, divisor = self._loss_weights(batches)
        for weight in weights:
            inputs, target, index = self._next_inputs(batches.pop(0))  # popped, so that no second copy is kept
            with self.strategy.batch_context(last=not batches):
                with self.place.autocast():
                    loss, total, outputs = self.strategy.loss(inputs, target, index, self._random)
                total.backward(torch.full_like(total, weight / divisor))  # the gradient of total · weight / divisor
            self._add_loss(loss, weight, outputs, target)
        if self.place.reads_loss_every_step or self.state.update % SYNC_EVERY == 0:
            self.sync_losses()
        if self.settings.grad_clip:
            self._clip_gradients()
        for optimizer in self.optimizers:
            optimizer.step()
        self.network.constrain()
        self.state.update += 1

    def _end_epoch(self) -> None:
        """Validate, add the row of the epoch, and start the next one."""
        self.sync_losses()
        self._check_weights()
        self.scores = self.validate(self.val) if self.val is not None else {}
        self.log(self.scores)
        self.next_epoch()
        self.call("on_epoch_end")

    def next_epoch(self) -> None:
        """End the epoch and start the next."""
        state = self.state
        if self.task_schedule.ends_task(state.epoch):
            self.objective.end_task(self.train, self.place, state.epoch)
        state.epoch += 1
        state.batch, state.loss_sum, state.counted = 0, 0.0, 0.0
        state.row_loss_sum, state.row_counted = 0.0, 0.0

    def log(self, scores: dict[str, float]) -> None:
        """Add a row to the history, with the metrics of a validation if there was one."""
        add_row(self.state, scores)
        if scores:
            self.call("on_validation_end")

    # --- parts of a step --------------------------------------------------------------------------------------

    def _set_lr(self, steps: int) -> None:
        """Set the learning rate of the schedule."""
        state, settings = self.state, self.settings
        state.lr = settings.lr * lr_factor(settings, self.phase_progress(steps), steps)
        for optimizer in self.optimizers:
            for parameters in optimizer.param_groups:
                parameters["lr"] = state.lr * parameters["scale"]

    def _loss_weights(self, batches: list[Batch]) -> tuple[list[float], float]:
        """Return the weight of each batch in this process, and the divisor for the mean loss over all processes."""
        place, task, carries = self.place, self.task, self.objective.is_stateful
        sizes = [len(index) for _, index in zip(batches, self.plan[self.state.batch :])] if place.processes > 1 else []
        weights = [place.shard_weight(size, carries) for size in sizes] or [1.0] * len(batches)
        (counted,) = place.sum_over_shards(
            sum(w * self._loss_denominator(k, batch) for k, (w, batch) in enumerate(zip(weights, batches)))
        )
        self.state.counted += counted
        # Word vectors use sums. If a batch has no targets, the sum is 0.
        return weights, 1.0 if getattr(task, "loss_is_sum", False) or not counted else counted

    def _loss_denominator(self, k: int, batch: Batch) -> float:
        """Return the denominator of the mean loss of the k-th batch of this update."""
        if self.objective.sample_weights is None:
            return self.task.loss_denominator(batch.target)
        index = self.place.shard_batch(self.plan[self.state.batch + k], self.objective.is_stateful)
        return self.objective.loss_denominator(batch.target, index)

    def _next_inputs(self, batch: Batch) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None]:
        """Return the inputs of the next batch, augmented and on the device, its target, and its examples' indices."""
        state, place = self.state, self.place
        inputs, target = place.batch(batch.without_mask)
        index = place.shard_batch(self.plan[state.batch], self.objective.is_stateful) if self.plan else None
        own = (place.rank,) if place.processes > 1 else ()
        self._random.manual_seed(mix_seeds(self.settings.seed, state.epoch, state.batch, *own))
        if self.augment:
            varied, target = self.augment(inputs[0], target, self._random)
            inputs = (varied, *inputs[1:])
        self._inputs = inputs
        return inputs, target, index

    def _add_loss(self, loss: Tensor, weight: float, outputs: Tensor | None, target: Tensor) -> None:
        """Count a batch: its loss, which is read later, and the mistakes of the perceptron rule."""
        state, task = self.state, self.task
        self._losses.append(loss if weight == 1 else loss * weight)
        state.batch += 1
        if task.loss_name == "perceptron" and isinstance(task, Classification) and outputs is not None:
            state.mistakes += round(self.place.sum_over_shards(weight * task.wrong_sides(outputs, target))[0])

    def _clip_gradients(self) -> None:
        """Clip the norm of the gradients, and stop the run if it is not finite."""
        norm = self.strategy.clip_gradients(self._parameters, self.settings.grad_clip)
        if self.place.reads_loss_every_step and not math.isfinite(norm):
            self._raise_nonfinite("a gradient")

    def sync_losses(self) -> None:
        """Synchronize the losses from the device, and stop the run if one is not finite."""
        losses = [loss.item() for loss in self._losses]
        if self.place.processes > 1:
            losses = [*self.place.sum_over_shards(sum(losses))]
        for loss in losses:
            self.state.loss_sum += loss
        self._losses.clear()
        if not math.isfinite(self.state.loss_sum):
            self._raise_nonfinite("the loss")

    # --- progress ---------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Return whether no further step follows."""
        state = self.state
        return bool(state.stopped) or state.update >= self.max_updates or state.epoch >= self.task_schedule.epochs

    @property
    def out_of_time(self) -> bool:
        """Return whether the time budget is used up."""
        return 0 < 60 * (self.settings.minutes or 0) < self.state.seconds

    @property
    def epoch_ends(self) -> bool:
        """Return whether the last step was the last one of the epoch."""
        return self.state.batch == len(self.plan) or self.finished or self.out_of_time

    def _start_phase(self, updates_per_epoch: int) -> int:
        """Set the trainable parameters of the epoch, and return the number of updates in its phase.

        A phase trains the head alone, or everything that is not frozen. The number assumes that each epoch of the phase
        has as many updates as this one. Each phase has its own schedule, so that pretrained layers are warmed up too. A
        task is one phase.
        """
        state, head_epochs = self.state, self.settings.freeze_epochs or 0
        if state.batch == 0 and (state.epoch == head_epochs or self.task_schedule.starts_task(state.epoch)):
            state.phase_update, state.phase_seconds = state.update, state.seconds
        heads_only = state.epoch < head_epochs
        set_trainable(
            self.model, self._learnable, self._frozen | backbone_names(self.model) if heads_only else self._frozen
        )
        self.strategy.set_loss(self.objective.loss)
        if not heads_only and self.max_updates < math.inf:
            return int(self.max_updates) - state.phase_update
        return updates_per_epoch * (head_epochs if heads_only else self.task_schedule.epochs_per_task - head_epochs)

    def phase_progress(self, steps: int) -> float:
        """Return the progress of the phase in [0, 1], by updates or by the time budget, whichever is further."""
        state, by_time = self.state, 0.0
        if self.settings.minutes:
            left = 60 * self.settings.minutes - state.phase_seconds  # at the start of the phase
            by_time = (state.seconds - state.phase_seconds) / left if left > 0 else 1.0
        return max((state.update - state.phase_update) / steps, by_time)

    def updates_per_epoch(self, epoch: int = 0) -> int:
        """Return the number of updates of an epoch, if nothing ends it early."""
        return math.ceil(len(self.epoch_batches(epoch)) / self.settings.accumulate)

    def total_updates(self) -> int:
        """Return the number of updates of the whole training, if nothing ends it early."""
        if self.settings.max_steps:
            return int(self.max_updates)
        schedule = self.task_schedule
        first_epochs = range(0, schedule.epochs, schedule.epochs_per_task)
        return schedule.epochs_per_task * sum(map(self.updates_per_epoch, first_epochs))

    def _read_clock(self) -> None:
        """Set the time of training within `fit`, and whether a signal asked to stop, the same in all processes."""
        if self._began is not None:
            self.state.seconds, self.stop_requested = self._sync_stop(time.perf_counter() - self._began)

    def _sync_stop(self, seconds: float) -> tuple[float, bool]:
        """Return the time of the first process, which all processes use, and whether any process was asked to stop."""
        own = (seconds if self.place.writes else 0.0, float(self._stop.requested))
        seconds, asked = self.place.sum_over_processes(*own)
        return seconds, asked > 0

    # --- validation --------------------------------------------------------------------------------------------

    def validate(self, split: Split) -> dict[str, float]:
        """Return the loss, fast metrics and the monitored metric on a split, with averaged weights if there are any.

        For a sequence of tasks only the tasks so far are used. An objective with its own validation returns its own
        scores.
        """
        settings = self.settings
        averaged = self.average.applied() if self.average else nullcontext()
        if self.objective.scores is not None:
            with averaged:
                return self.objective.scores(split, self.place)
        self.strategy.broadcast_statistics()
        split = self.task_schedule.learned_tasks(split, self.state.epoch)
        size = evaluation_batch_size(
            settings.eval_batch_size, self.spec, max(EVALUATION_BATCH_SIZE, settings.batch_size)
        )
        tokens = 0 if settings.eval_batch_size else settings.batch_tokens
        with averaged, self.strategy.inference_context():
            outputs, target = evaluate_split(
                self.model, split, self.place, size, self.task, flip=settings.tta, tokens=tokens
            )
        target = target.to(outputs.dtype) if target.is_floating_point() else target
        metrics = self.task.fast_metrics(outputs, target)
        if "loss" not in metrics:
            metrics = {"loss": self.task.loss(outputs, target).item() / self.task.loss_denominator(target), **metrics}
        if self.monitor not in metrics:
            metrics[self.monitor] = self.task.metrics(outputs, target)[self.monitor].value
        return metrics

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to save, averaged if there is an average. Only the process that writes gets them."""
        return gather_tensors(self.average.weights if self.average else self.model.state_dict(), self.place.writes)

    @property
    def train_loss(self) -> float:
        """Return the mean training loss of the current epoch."""
        return self.state.loss_sum / self.state.counted if self.state.counted else math.nan

    def epoch_batches(self, epoch: int) -> Batches:
        """Return the example indices of each batch of an epoch, the same on every call."""
        return self.objective.batches(self.train, self.settings, epoch)

    # --- checkpoints ------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Resume from the last checkpoint."""
        average = self.average.weights if self.average else None
        saved = load_checkpoint(self.checkpoints, self.model, self.optimizers, average, self.place.rank)
        self.state = saved.state
        self.objective.hidden_state = tuple(
            self.place.shard_batch(part, carries=True, dim=1) for part in saved.hidden_state
        )
        self.objective.load_state(saved.learned)
        self.pruning = build_pruning(self.model, self.settings, begun=True)
        self._bind_callbacks()
        restore_states(self.own_callbacks, saved.state.callbacks, saved.callbacks)

    def checkpoint_now(self) -> None:
        """Write a checkpoint. Non-finite values are rejected first, so that the previous one remains valid."""
        self.sync_losses()
        self._check_weights()
        self.strategy.broadcast_statistics()
        states = collect_states(self.own_callbacks)
        of_processes = self.place.all_gather((self.objective.hidden_state, random_state(), states))
        hidden_state = tuple(merge_states(parts) for parts in zip(*(hidden for hidden, *_ in of_processes)))
        random = [random for _, random, _ in of_processes]
        self.state.callbacks, callback_tensors = of_processes[0][2]
        average = self.average.weights if self.average else None
        extra = hidden_state, self.objective.state(), random, callback_tensors
        tensors = checkpoint_tensors(self.model, self.optimizers, average, *extra)
        self.strategy.save_checkpoint(self.checkpoints, tensors, self.state)
        self.call("on_checkpoint")

    def _check_weights(self) -> None:
        """Reject non-finite weights, which follow a non-finite gradient by one update, so that they are never saved."""
        broken = any(not torch.isfinite(local_part(p)).all() for p in self._parameters)
        if self.place.sum_over_processes(float(broken))[0]:
            self._raise_nonfinite("a weight")

    def _raise_nonfinite(self, what: str) -> None:
        """Raise TrainingError with the update, the layer, the last good checkpoint, and what to try."""
        state, where = self.state, find_nonfinite(self.model, self._inputs)
        if where.startswith("the weights"):
            problem = f"after update {state.update}, in epoch {state.epoch + 1}: its gradient broke {where}"
        else:
            problem = f"at update {state.update + 1}, in epoch {state.epoch + 1}: {what} is not finite"
            problem += f"; the first non-finite values are in {where}" if where else ""
        self.strategy.wait_for_checkpoint()
        last = latest_checkpoint(self.checkpoints)
        checkpoint = f"The last good checkpoint is {last}." if last else "There is no checkpoint yet."
        raise TrainingError(
            f"Training stopped {problem}. {checkpoint} Try a smaller rate (lr={self.settings.lr / 10:g}) or "
            "grad_clip=1; `cutaway check` shows values out of range."
        )


def _batch_groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Yield lists of `size` consecutive batches; the last one may be shorter."""
    while group := list(itertools.islice(batches, size)):
        yield group


def silent_trainer(ready: TrainingSetup) -> Trainer:
    """Return a trainer for step-by-step use, which shows no progress and writes no files unless an epoch ends."""
    return Trainer(
        ready.model,
        ready.data,
        ready.task,
        ready.settings,
        ready.place,
        Path("unused"),
        Progress(shown=False),
        teacher=ready.teacher,
        deferred=ready.deferred,
    )
