"""Images a second from a folder of JPEGs: decode, resize, crop, flip, normalise, batch; beside torchvision's reader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

from .pairs import Pair, race
from .peers import torchvision

COUNT, SIZE, BATCH, WORKERS = 240, 128, 32, 2
SIDES = ((500, 375), (640, 480), (1024, 768))  # photographs as they come


def photographs(folder: Path) -> None:
    """Two classes of JPEGs made from scikit-learn's two photographs, cut and enlarged in many ways."""
    from sklearn.datasets import load_sample_images

    sources = [Image.fromarray(i) for i in load_sample_images().images]
    for i in range(COUNT):
        source, side = sources[i % 2], SIDES[i % len(SIDES)]
        left, top = (7 * i) % 120, (5 * i) % 80
        image = source.crop((left, top, left + 500, top + 340)).resize(side, Image.Resampling.BICUBIC)
        path = folder / "train" / ("china" if i % 2 else "flower") / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=90)


def ours(folder: Path) -> Callable[[], object]:
    """One pass over the folder with our streaming reader, batch augmentation included."""
    data = open_data(folder, DataSettings(image_size=SIZE, workers=WORKERS, flip=True, memory=0, val=0.1))
    split = data.splits["train"]
    generator = torch.Generator()

    def read() -> None:
        seen = 0
        for i, batch in enumerate(split.batches(torch.randperm(len(split)).split(BATCH), seed=0)):
            generator.manual_seed(i)
            assert data.augment is not None
            x, _ = data.augment(batch.inputs[0], batch.target, generator)
            seen += len(x)
        assert seen == len(split)

    return read


def theirs(folder: Path, count: int) -> Callable[[], object]:
    """One pass over as many images with torchvision's ImageFolder, its usual transforms and a DataLoader."""
    torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = transforms.Compose(
        [
            transforms.Resize(SIZE),
            transforms.RandomCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    images = ImageFolder(folder / "train", steps)
    subset = torch.utils.data.Subset(images, range(count))
    loader = torch.utils.data.DataLoader(subset, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)

    def read() -> None:
        assert sum(len(x) for x, _ in loader) == count

    return read


def rows() -> list[tuple[Pair, float]]:
    """The one case. The ratio is of times, so at most 1 means at least as many images a second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder)
        read = ours(folder)
        count = len(open_data(folder, DataSettings(image_size=SIZE, memory=0, val=0.1)).splits["train"])
        return [
            (
                race(
                    f"read: {count} JPEGs to {SIZE}×{SIZE}, {WORKERS} workers",
                    read,
                    theirs(folder, count),
                    runs=7,
                ),
                1.0,
            )
        ]
