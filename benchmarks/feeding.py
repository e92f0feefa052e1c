"""What reads the files of an epoch, beside the steps that learn from them: a loader that is slower starves them.

Files are read from the disk again and again, as those of a folder larger than memory are, by as many processes as there
are cores; sounds become log-mel frames in as many threads. The steps are the trainer's network, loss and optimizer, on
batches at hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cutaway.data.audio.transforms import AudioPreprocessing, spectrograms
from cutaway.data.synthetic import media
from cutaway.training.optim import build_optimizers
from cutaway.training.setup import TrainingSetup, setup_training

from .pairs import Pair, race

BATCHES = 8
LIMIT = 1 / 3  # of the steps' time
CASES: dict[str, tuple[str, Callable[[Path], None], dict[str, Any]]] = {
    "scenes in class folders, resnet20": ("resnet20", media.scans, {}),
    "scenes with masks, unet-small": ("unet-small", media.masks, {}),
    "scenes with boxes, fcos-resnet18-small": ("fcos-resnet18-small", media.scenes, {}),
    "scenes with captions, show-attend-tell": ("show-attend-tell", media.captions, {}),
}


def rows() -> list[tuple[Pair, float]]:
    """Each kind of files beside its network's steps."""
    return [(of_images(title, *case), LIMIT) for title, case in CASES.items()] + [(of_sounds(), LIMIT)]


def of_images(title: str, preset: str, write: Callable[[Path], None], settings: dict[str, Any], runs: int = 7) -> Pair:
    """Reading batches of image files beside learning from them."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name) / "files")
        ready = setup_training(preset, str(Path(name) / "files"), {"memory": 0, "seed": 0, **settings})
        split = ready.data.splits["train"]
        size = ready.settings.batch_size or len(split)
        plan = list(torch.split(torch.arange(min(len(split), BATCHES * size)), size))

        def read() -> None:
            for _ in split.batches(plan):
                pass

        batches = list(split.batches(plan))
        return race(f"feed: {title}, {len(plan)} batches of {size}", read, learning(ready, batches), runs)


def of_sounds(count: int = 128, runs: int = 7) -> Pair:
    """Making log-mel frames of recordings beside learning to write down what is said in them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        media.spelled(folder, count)
        ready = setup_training("ctc-conv-gru", str(folder), {"seed": 0})
        split, files = ready.data.splits["train"], sorted(folder.glob("**/*.wav"))
        size = ready.settings.batch_size or len(split)
        batches = list(split.batches(list(torch.split(torch.arange(len(split)), size))))
        own, read = ready.data.preprocessing, files[: len(split)]
        assert isinstance(own, AudioPreprocessing)

        def frames() -> None:
            spectrograms(read, own.rate, own.spec.n_mels, None)

        return race(f"feed: strings of sounds, ctc-conv-gru, {len(read)} files", frames, learning(ready, batches), runs)


def learning(ready: TrainingSetup, batches: list[Any]) -> Callable[[], object]:
    """A step for each batch, each time it is called."""
    model = ready.place.model(ready.model)
    optimizers = build_optimizers(model, ready.settings)

    def learn() -> None:
        model.train()
        for batch in batches:
            inputs, target = ready.place.batch(batch)
            outputs = model(*inputs)
            loss = ready.task.loss(outputs, target) / ready.task.loss_denominator(target)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()

    return learn
