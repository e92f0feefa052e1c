"""The settings of data: what to learn from it, how it is split, prepared and varied."""

from __future__ import annotations

from dataclasses import dataclass

from ..settings import setting


@dataclass(frozen=True)
class DataSettings:
    """How a source becomes examples."""

    target: str | None = setting(None, "the column to predict")
    ignore: tuple[str, ...] = setting((), "columns to leave out, comma-separated")
    types: tuple[str, ...] = setting((), "columns whose inferred type is wrong: age:number,zip:category,day:date")
    group: str | None = setting(None, "a column whose equal values stay in one part of the split")
    missing: str = setting(
        "refuse",
        "rows without a target, and cells that are not numbers in a column of numbers: refuse names them, "
        "drop leaves those rows out, fill treats those cells as missing",
        choices=("refuse", "drop", "fill"),
    )
    scale: str = setting(
        "standard",
        "numbers of a table: standard (mean 0, deviation 1), quantile (ranks to a normal curve), none",
        choices=("standard", "quantile", "none"),
    )
    val: float = setting(
        0.15,
        "share of the rows kept for validation, where the data has no such part; 0 keeps none",
        low=0.0,
        high=0.9,
    )
    test: float = setting(
        0.15,
        "share of the rows kept for the one test at the end, where the data has no such part; 0 keeps none",
        low=0.0,
        high=0.9,
    )
    split_seed: int = setting(0, "seed of the split: the same seed gives the same parts", low=0)
    image_size: int | None = setting(None, "height and width that images are brought to", low=1, high=4096)
    fit: str = setting(
        "auto",
        "how an image is brought to image_size: crop (shorter side, then the centre), stretch, pad; "
        "auto pads where a few pixels are missing, crops otherwise",
        choices=("auto", "crop", "stretch", "pad"),
    )
    color: str = setting(
        "auto", "colours of images: rgb, grey, or as most files have them", choices=("auto", "rgb", "grey")
    )
    limit: int | None = setting(None, "use only this many training examples, drawn at random by split_seed", low=1)
    memory: int = setting(
        512, "MiB of decoded images to hold; a folder that needs more is read anew in every epoch", low=0
    )
    workers: int | None = setting(None, "processes that read image files; 0 reads in this one", low=0, high=256)
    flip: bool = setting(False, "augmentation: mirror half of the training images left to right")
    crop: int = setting(
        0, "augmentation: pad training images by so many pixels and cut out a random window", low=0, high=512
    )
    color_jitter: float = setting(
        0.0, "augmentation: change brightness, contrast and saturation by up to this share", low=0.0, high=1.0
    )
    cutout: int = setting(0, "augmentation: side of a square that is blanked in each training image", low=0, high=4096)
    mixup: float = setting(
        0.0, "augmentation: blend pairs of examples, the share from Beta(mixup, mixup)", low=0.0, high=10.0
    )
