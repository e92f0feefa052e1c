"""Adversarial examples of images, for adversarial training and for evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Generator, Tensor, nn

from ..core.errors import SettingError, UnknownName
from ..core.spec import Classes
from ..data.augment import per_channel
from ..data.dataset_base import Batch, Preprocessing, Split
from ..data.images.transforms import ImagePreprocessing
from ..models.base import as_output_tuple
from ..nn.adversarial import Bounds, fgsm, pgd
from ..nn.modules import eval_mode
from ..tasks.task import Task
from .device import DeviceContext

METHODS = ("fgsm", "pgd")


class Attack:
    """Adversarial attack on normalized images (N, C, H, W), which changes a pixel by at most `eps` of its range.

    A pixel ranges from 0 to 1 before normalization.
    """

    def __init__(
        self, model: nn.Module, task: Task, preprocessing: Preprocessing, method: str, eps: float, steps: int
    ) -> None:
        """Initialize the attack. Raises SettingError unless the data is images with classes and `eps` is positive."""
        if not isinstance(preprocessing, ImagePreprocessing) or not isinstance(preprocessing.spec.target, Classes):
            kind = preprocessing.spec.kind
            raise SettingError(
                f"attack={method} changes the pixels of images so that their class is told wrongly, and this is {kind} "
                f"data that asks for {preprocessing.spec.target.column}: leave it out."
            )
        if not eps > 0:
            raise SettingError(f"eps={eps:g} changes nothing: a pixel goes from 0 to 1, and 8/255 is 0.031.")
        self.model, self.task, self.method, self.steps = model, task, method, steps
        self.eps, self.mean, self.std = eps, preprocessing.mean, preprocessing.std

    def __call__(self, x: Tensor, target: Tensor, generator: Generator) -> Tensor:
        """Return the attacked images. The gradient is that of the model in eval mode."""
        mean, std = per_channel(self.mean, x), per_channel(self.std, x)
        bounds = Bounds(self.eps / std, -mean / std, (1 - mean) / std)

        def loss(images: Tensor) -> Tensor:
            return self.task.loss(as_output_tuple(self.model(images))[0], target)

        with eval_mode(self.model):
            if self.method == "fgsm":
                return fgsm(loss, x, bounds)
            return pgd(loss, x, bounds, self.steps, generator)


class AttackedSplit(Split):
    """A split whose images are attacked when they are read. The random start is the same on every pass."""

    def __init__(
        self,
        split: Split,
        model: nn.Module,
        task: Task,
        preprocessing: Preprocessing,
        place: DeviceContext,
        method: str,
        eps: float,
        steps: int,
    ) -> None:
        """Initialize the split. Raises UnknownName for an unknown method, and SettingError as `Attack` does."""
        if method not in METHODS:
            raise UnknownName("attack", method, METHODS)
        self.split, self.place, self.target = split, place, split.target
        self.attack = Attack(model, task, preprocessing, method, eps, steps)

    def __len__(self) -> int:
        return len(self.split)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the attacked batches."""
        generator = Generator(self.place.device).manual_seed(0)
        for batch in self.split.batches(order, seed):
            (x, *rest), target = self.place.batch(batch)
            yield Batch((self.attack(x, target, generator), *rest), target)

    def name(self, i: int) -> str:
        """Return the name of example i."""
        return self.split.name(i)
