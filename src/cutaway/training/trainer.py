"""The training loop: steps, epochs, validation, checkpoints, stopping and resuming.

All random numbers follow from the seed and the position in training (the order of an epoch, the augmentation of a
batch), or are part of the checkpoint (torch's random state, for dropout). A run that was killed and resumed is
therefore bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checkpoints.deferred_init import DeferredInit
from ..core.errors import TrainingError
from ..core.metric_names import metric
from ..data.dataset_base import Augment, Batch, DataSet, Split
from ..data.samplers import Batches
from ..distributed.tensor_parallel import gather_tensors, local_part
from ..models.base import BaseModel, as_base_model
from ..tasks.classification import Classification
from ..tasks.task import HIGHER_IS_BETTER, Task
from .batches import epochs_for_steps, mix_seeds
from .checkpoint import (
    TrainingState,
    checkpoint_tensors,
    latest_checkpoint,
    load_checkpoint,
    random_state,
    save_weights,
)
from .config import TrainSettings
from .config_checks import reject_incompatible
from .device import DeviceContext, merge_states
from .evaluation import EVALUATION_BATCH_SIZE, evaluate_split, evaluation_batch_size
from .interruption import Interrupted, Stop
from .metrics_log import add_row, is_cheap, is_due
from .objectives.choice import build_objective
from .objectives.distillation import Teacher
from .optim import build_optimizers, lr_factor
from .output_check import find_nonfinite
from .parallel import select_strategy
from .parameter_groups import backbone_names, match_frozen, set_trainable
from .progress import Progress
from .pruning import Pruning, build_pruning
from .snapshots import Snapshots, snapshot_updates
from .weight_averaging import LastEpochs, MovingAverage, swap_weights

LOOK_EVERY = 50  # steps between reading losses, if reading them synchronizes the device
SAVE_EVERY = 1.0  # least seconds of training between checkpoints at ends of epochs
FIRST_IMAGES = 5000  # images for data-dependent initialization
CONVERGED = "an epoch of the perceptron rule made no mistake"


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
        on_row: Callable[[TrainingState], None] = lambda state: None,
        teacher: Teacher | None = None,
        deferred: DeferredInit | None = None,
    ) -> None:
        reject_incompatible(settings, data.splits["train"])
        self.strategy = select_strategy(model, place, settings, deferred)
        self.model = self.strategy.model
        self.train = place.hold(data.splits["train"])
        self.val = place.hold(data.splits["val"]) if "val" in data.splits else None
        self.augment: Augment | None = data.augment
        self.spec, self.task, self.settings, self.place = data.spec, task, settings, place
        self.checkpoints, self.progress, self.on_row = checkpoints, progress, on_row
        self.monitor = settings.monitor or task.watch  # validation metric that selects the best weights
        self.higher_is_better = self.monitor in HIGHER_IS_BETTER
        self.network = as_base_model(self.model)
        self._learnable = {name for name, p in self.model.named_parameters() if p.requires_grad}
        self._frozen = match_frozen(self.model, settings.freeze)
        set_trainable(self.model, self._learnable, self._frozen)
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(self.model, settings)
        self.average = MovingAverage(self.model, settings.ema) if settings.ema else None
        self.last_epochs = LastEpochs(checkpoints, settings.average_epochs) if settings.average_epochs else None
        self.pruning: Pruning | None = None  # set once the weights are loaded
        self.mean: AverageRecord | None = None  # record of the averaged weights, at the end
        self.objective = build_objective(self.model, data, task, settings, self.train, place, teacher)
        self.strategy.learn(self.objective.loss)
        self.sequence = self.objective.sequence
        self.updates = epochs_for_steps(self.train, settings)[1] if settings.max_steps else math.inf  # last update
        at = snapshot_updates(self._total_updates()[0], settings.snapshots) if settings.snapshots else frozenset()
        self.snapshots = Snapshots(checkpoints.parent, at, place.writes)
        self.state = TrainingState()
        self.plan: Batches = []  # example indices of each batch of the epoch, for all processes
        self._losses: list[Tensor] = []  # of the steps since they were last read, still on the device
        self._inputs: tuple[Tensor, ...] = ()  # of the current step, to find a layer with non-finite values
        self._stop = Stop()
        self._random = torch.Generator(place.device)

    # --- the epochs -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a new training.

        A model that is initialized from training images (`initialize_from`) gets up to 5 000 of them without
        augmentation, unless it has pretrained weights. From here on each process draws its own random numbers.
        """
        if self.place.rank:
            torch.manual_seed(mix_seeds(self.settings.seed, self.place.rank))
        self.pruning = build_pruning(self.model, self.settings, begun=self.settings.weights is not None)
        if type(self.network).initialize_from is BaseModel.initialize_from or self.settings.weights:
            return
        (batch,) = self.train.batches([torch.cat([*self.batches_of(0)])[:FIRST_IMAGES]])
        (images, *_), _ = self.place.batch(batch)
        with torch.no_grad():
            self.network.initialize_from(images)
        if self.average:
            self.average.load(self.model.state_dict())

    def fit(self) -> TrainingState:
        """Train from `self.state` until the epochs, updates, minutes or patience are used up.

        Raises Interrupted (after writing a checkpoint) when stopped, and TrainingError if a loss is not finite.
        """
        state, settings = self.state, self.settings
        began, self._saved = time.perf_counter() - state.seconds, (state.seconds, state.epoch)
        in_all, an_epoch = self._total_updates()
        budget = 60 * (settings.minutes or 0)  # seconds; 0 is none
        if state.update == 0:
            self.snapshots.keep(0, self.weights)
        with self._stop.heard():
            while not state.stopped and state.epoch < self.sequence.epochs and state.update < self.updates:
                for last in self.epoch():
                    state.seconds, asked_to_stop = self._sync_stop(time.perf_counter() - began)
                    self.progress.step(state, self.train_loss)
                    out_of_time = 0 < budget < state.seconds
                    ends = last or state.update >= self.updates or out_of_time
                    if not ends and is_due(state, in_all, an_epoch, budget):
                        self._add_row_within(an_epoch)
                    if asked_to_stop:
                        self.checkpoint_now()
                        self.strategy.saved()
                        raise Interrupted(self.checkpoints.parent)
                    if state.update >= self.updates:
                        break
                    if out_of_time:
                        state.stopped = f"the time budget of {settings.minutes:g} minutes is used up"
                        break
                    if state.seconds - self._saved[0] > 60 * settings.save_minutes:
                        self.checkpoint_now()
                self._end_epoch()
        if self._saved[1] < state.epoch:
            self.checkpoint_now()
        self.strategy.saved()
        all_of_them = f"{state.update:,} updates" if state.update == settings.max_steps else "epochs"
        state.stopped = state.stopped or f"all {all_of_them} are done"
        if self.last_epochs:
            self.mean = self._save_mean(self.last_epochs)
        return state

    def epoch(self) -> Iterator[bool]:
        """Run the current epoch from its current position. Yield after each update whether it was the last one."""
        state, settings = self.state, self.settings
        batches = self.batches_of(state.epoch)
        steps = self._start_phase(math.ceil(len(batches) / settings.accumulate))
        if state.batch == 0:
            self.objective.carried = ()
        self.progress.epoch(state.epoch, self.sequence.epochs, len(batches), state.batch)
        self.plan = batches
        own = (self.place.share(index, self.objective.carries) for index in batches[state.batch :])
        remaining = self.train.batches(own, seed=mix_seeds(settings.seed, state.epoch))
        for group in _batch_groups(remaining, settings.accumulate):
            self.step(group, steps)
            self.snapshots.keep(state.update, self.weights)
            yield state.batch == len(batches)

    def next_epoch(self) -> bool:
        """End the epoch and start the next.

        Return whether the perceptron rule has converged, with no mistake in the epoch.
        """
        state = self.state
        if self.sequence.ends(state.epoch):
            self.objective.end_task(self.train, self.place, state.epoch)
        every_example_seen = self.settings.sampling == "shuffle"
        perceptron = self.task.loss_name == "perceptron"
        converged = perceptron and every_example_seen and state.mistakes == state.mistakes_before
        state.mistakes_before = state.mistakes
        state.epoch += 1
        state.batch, state.loss_sum, state.counted = 0, 0.0, 0.0
        state.row_loss_sum, state.row_counted = 0.0, 0.0
        return converged

    def _start_phase(self, an_epoch: int) -> int:
        """Set the trainable parameters of the epoch, and return the number of updates in its phase.

        A phase trains the head alone, or everything that is not frozen. The number assumes that each epoch of the phase
        has as many updates as this one. Each phase has its own schedule, so that pretrained layers are warmed up too. A
        task is one phase.
        """
        state, alone = self.state, self.settings.freeze_epochs or 0
        if state.batch == 0 and (state.epoch == alone or self.sequence.begins(state.epoch)):
            state.phase_update, state.phase_seconds = state.update, state.seconds
        heads_only = state.epoch < alone
        set_trainable(
            self.model, self._learnable, self._frozen | backbone_names(self.model) if heads_only else self._frozen
        )
        self.strategy.learn(self.objective.loss)
        if not heads_only and self.updates < math.inf:
            return int(self.updates) - state.phase_update
        return an_epoch * (alone if heads_only else self.sequence.each - alone)

    def step(self, group: list[Batch], steps: int) -> None:
        """Run one update: the gradient of the mean loss over the batches in `group`, then the optimizers' step.

        The batches are this process's share. `steps` is the number of updates of the current phase.
        """
        state, settings, task, place = self.state, self.settings, self.task, self.place
        state.lr = settings.lr * lr_factor(settings, self._progress(steps), steps)
        for optimizer in self.optimizers:
            for parameters in optimizer.param_groups:
                parameters["lr"] = state.lr * parameters["scale"]
        for parameter in self._parameters:
            parameter.grad = None  # like zero_grad, at a third of its cost
        sizes = [len(index) for _, index in zip(group, self.plan[state.batch :])] if place.processes > 1 else []
        weights = [place.weight(size, self.objective.carries) for size in sizes] or [1.0] * len(group)
        (counted,) = place.total(sum(w * task.count(batch.target) for w, batch in zip(weights, group)))
        # Word vectors use sums. If a batch has no targets, the sum is 0.
        divisor = 1.0 if getattr(task, "sums", False) or not counted else counted
        for weight in weights:
            inputs, target = place.batch(group.pop(0).without_mask)  # popped, so that no second copy is kept
            index = place.share(self.plan[state.batch], self.objective.carries) if self.plan else None
            own = (place.rank,) if place.processes > 1 else ()
            self._random.manual_seed(mix_seeds(settings.seed, state.epoch, state.batch, *own))
            if self.augment:
                varied, target = self.augment(inputs[0], target, self._random)
                inputs = (varied, *inputs[1:])
            self._inputs = inputs
            with self.strategy.batch(last=not group):
                with place.autocast():
                    loss, total, outputs = self.strategy.loss(inputs, target, index, self._random)
                total.backward(torch.full_like(total, weight / divisor))  # the gradient of total · weight / divisor
            self._losses.append(loss if weight == 1 else loss * weight)
            state.batch += 1
            if task.loss_name == "perceptron" and isinstance(task, Classification) and outputs is not None:
                state.mistakes += round(place.total(weight * task.wrong_sides(outputs, target))[0])
        state.counted += counted
        if place.looks_at_every_step or state.update % LOOK_EVERY == 0:
            self.look()
        if settings.grad_clip:
            norm = self.strategy.clip(self._parameters, settings.grad_clip)
            if place.looks_at_every_step and not math.isfinite(norm):
                self._reject("a gradient")
        for optimizer in self.optimizers:
            optimizer.step()
        self.network.constrain()
        if self.average:
            self.average.update(state.update)
        state.update += 1
        if self.pruning:
            self.pruning.step(self._progress(steps))

    def _end_epoch(self) -> None:
        """Validate, save the best weights, write the row and the checkpoint, and start the next epoch."""
        state, settings = self.state, self.settings
        self.look()
        self._reject_broken_weights()
        scores = self.validate(self.val) if self.val is not None else {}
        row = add_row(state, scores)
        if self.sequence.ends(state.epoch) and self.place.writes:
            self.sequence.keep(self.checkpoints, state.epoch, self.weights())
        converged = self.next_epoch()
        if not scores or self.sequence.count > 1 or self._is_better(scores):  # with tasks the last weights are saved
            state.best_epoch = state.epoch
            state.best_score, state.best_loss = scores.get(self.monitor), scores.get("loss")
            state.best_zeros = self.pruning.zeros if self.pruning else 0
            weights = self.weights()
            if self.place.writes:
                save_weights(self.checkpoints / "best.safetensors", weights)
        if self.last_epochs:
            self.last_epochs.keep(state.epoch, gather_tensors(self.model.state_dict(), self.place.writes))
        if converged:
            state.stopped = state.stopped or CONVERGED
        elif settings.patience and state.epoch - state.best_epoch >= settings.patience:
            state.stopped = (
                state.stopped or f"no better validation {metric(self.monitor)[0]} in {settings.patience} epochs"
            )
        if not self._saved[1] or state.seconds - self._saved[0] > SAVE_EVERY:
            self.checkpoint_now()
        self.progress.epoch_done(row)
        self.on_row(state)

    def _add_row_within(self, an_epoch: int) -> None:
        """Write a row within an epoch, without an effect on training or its random numbers."""
        self.look()
        scores: dict[str, float] = {}
        if self.val is not None and is_cheap(self.state, an_epoch, len(self.train), len(self.val)):
            with torch.random.fork_rng([self.place.device] if self.place.device.type == "cuda" else []):
                scores = self.validate(self.val)
        add_row(self.state, scores)
        self.on_row(self.state)

    def _is_better(self, scores: dict[str, float]) -> bool:
        """Return whether an epoch with these metrics is better than the best one so far.

        While a model is pruned, sparser weights are better. Otherwise the monitored metric decides, and then the loss,
        for metrics that are often equal, such as accuracy.
        """
        if self.pruning and self.pruning.zeros > self.state.best_zeros:
            return True
        sign = 1 if self.higher_is_better else -1

        def rank(score: float | None, loss: float | None) -> tuple[float, ...]:
            known = (math.nan if score is None else sign * score, math.nan if loss is None else -loss)
            return tuple(-math.inf if math.isnan(x) else x for x in known)

        best = rank(self.state.best_score, self.state.best_loss)
        return rank(scores[self.monitor], scores["loss"]) > best or not self.state.best_epoch

    # --- helpers of a step ------------------------------------------------------------------------------------

    def validate(self, split: Split) -> dict[str, float]:
        """Return the loss, fast metrics and the monitored metric on a split, with averaged weights if there are any.

        For a sequence of tasks only the tasks so far are used. An objective with its own validation returns its own
        scores.
        """
        settings = self.settings
        if self.objective.scores is not None:
            with self.average.applied() if self.average else nullcontext():
                return self.objective.scores(split, self.place)
        self.strategy.share_statistics()
        split = self.sequence.seen(split, self.state.epoch)
        size = evaluation_batch_size(
            settings.eval_batch_size, self.spec, max(EVALUATION_BATCH_SIZE, settings.batch_size)
        )
        tokens = 0 if settings.eval_batch_size else settings.batch_tokens
        with self.average.applied() if self.average else nullcontext(), self.strategy.answering():
            outputs, target = evaluate_split(
                self.model, split, self.place, size, self.task, flip=settings.tta, tokens=tokens
            )
        target = target.to(outputs.dtype) if target.is_floating_point() else target
        metrics = self.task.quick(outputs, target)
        if "loss" not in metrics:
            metrics = {"loss": self.task.loss(outputs, target).item() / self.task.count(target), **metrics}
        if self.monitor not in metrics:
            metrics[self.monitor] = self.task.metrics(outputs, target)[self.monitor].value
        return metrics

    def _save_mean(self, last: LastEpochs) -> AverageRecord:
        """Write the mean of the weights after the last epochs, which is read from their files, and evaluate it."""
        self.place.together(None)  # barrier: the first process has written the last file
        weights, first = last.mean(self.state.epoch)
        if self.place.writes:
            save_weights(self.checkpoints / "average.safetensors", weights)
        with swap_weights(self.model, weights):
            score = self.validate(self.val)[self.monitor] if self.val is not None else None
        return AverageRecord(first, self.state.epoch, score)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to save, averaged if there is an average. Only the process that writes gets them."""
        return gather_tensors(self.average.weights if self.average else self.model.state_dict(), self.place.writes)

    @property
    def train_loss(self) -> float:
        """Return the mean training loss of the current epoch."""
        return self.state.loss_sum / self.state.counted if self.state.counted else math.nan

    def batches_of(self, epoch: int) -> Batches:
        """Return the example indices of each batch of an epoch, the same on every call."""
        return self.objective.batches(self.train, self.settings, epoch)

    def _total_updates(self) -> tuple[int, int]:
        """Return the number of updates of the whole training, if nothing ends it early, and that of the first epoch."""
        firsts = range(0, self.sequence.epochs, self.sequence.each)
        by_task = [math.ceil(len(self.batches_of(epoch)) / self.settings.accumulate) for epoch in firsts]
        return (int(self.updates) if self.settings.max_steps else self.sequence.each * sum(by_task)), by_task[0]

    def _sync_stop(self, seconds: float) -> tuple[float, bool]:
        """Return the time of the first process, which all processes use, and whether any process was asked to stop."""
        own = (seconds if self.place.writes else 0.0, float(self._stop.asked))
        seconds, asked = self.place.total_of_all(*own)
        return seconds, asked > 0

    def _progress(self, steps: int) -> float:
        """Return the progress of the phase in [0, 1], by updates or by the time budget, whichever is further."""
        state, by_time = self.state, 0.0
        if self.settings.minutes:
            left = 60 * self.settings.minutes - state.phase_seconds  # at the start of the phase
            by_time = (state.seconds - state.phase_seconds) / left if left > 0 else 1.0
        return max((state.update - state.phase_update) / steps, by_time)

    # --- stopping, failing, resuming --------------------------------------------------------------------------

    def resume(self) -> None:
        """Resume from the last checkpoint."""
        parts = load_checkpoint(self.checkpoints, self.model, self.optimizers, self.average, self.place.rank)
        self.state, carried, remembered = parts
        self.objective.carried = tuple(self.place.share(part, carries=True, dim=1) for part in carried)
        self.objective.remember(remembered)
        self.pruning = build_pruning(self.model, self.settings, begun=True)

    def checkpoint_now(self) -> None:
        """Write a checkpoint. Non-finite values are rejected first, so that the previous one remains valid."""
        self.look()
        self._reject_broken_weights()
        self.strategy.share_statistics()
        of_each = self.place.together((self.objective.carried, random_state()))
        carried = tuple(merge_states(parts) for parts in zip(*(carried for carried, _ in of_each)))
        learned = carried, self.objective.remembered(), [random for _, random in of_each]
        tensors = checkpoint_tensors(self.model, self.optimizers, self.average, *learned)
        self.strategy.save(self.checkpoints, tensors, self.state)
        self._saved = self.state.seconds, self.state.epoch

    def look(self) -> None:
        """Synchronize the losses from the device, and stop the run if one is not finite."""
        losses = [loss.item() for loss in self._losses]
        if self.place.processes > 1:
            losses = [*self.place.total(sum(losses))]
        for loss in losses:
            self.state.loss_sum += loss
        self._losses.clear()
        if not math.isfinite(self.state.loss_sum):
            self._reject("the loss")

    def _reject_broken_weights(self) -> None:
        """Reject non-finite weights, which follow a non-finite gradient by one update, so that they are never saved."""
        broken = any(not torch.isfinite(local_part(p)).all() for p in self._parameters)
        if self.place.total_of_all(float(broken))[0]:
            self._reject("a weight")

    def _reject(self, what: str) -> None:
        """Raise TrainingError with the update, the layer, the last good checkpoint, and what to try."""
        state, where = self.state, find_nonfinite(self.model, self._inputs)
        if where.startswith("the weights"):
            said = f"after update {state.update}, in epoch {state.epoch + 1}: its gradient broke {where}"
        else:
            said = f"at update {state.update + 1}, in epoch {state.epoch + 1}: {what} is not finite"
            said += f", and the first values that are not stand in {where}" if where else ""
        self.strategy.saved()
        last = latest_checkpoint(self.checkpoints)
        kept = f"The last good checkpoint is {last}." if last else "There is no checkpoint yet."
        raise TrainingError(
            f"Training stopped {said}. {kept} Try a smaller rate (lr={self.settings.lr / 10:g}) or grad_clip=1; "
            "`cutaway check` shows values out of range."
        )


@dataclass(frozen=True)
class AverageRecord:
    """Record of the mean of the weights after the last epochs, which replaces the best weights if it was requested."""

    first: int  # epoch, counted from 1
    last: int
    score: float | None  # monitored metric on the validation split


def _batch_groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    while group := list(itertools.islice(batches, size)):
        yield group
