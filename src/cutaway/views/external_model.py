"""Preprocessing of the user's files for models without a run.

Images are supported for vision models, texts if there is a tokenizer in the folder of the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import DataError
from ..core.spec import Classes, ImageSpec, Masked, NextToken, TextSpec, Value
from ..data.dataset_base import Preprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.saved_transforms import read_preprocessing
from ..data.text.tokenizer_files import open_tokenizer
from ..data.text.transforms import TextPreprocessing
from ..inspect.example_inputs import example_shape, input_modality
from ..models.registry import Preset

PREPROCESSING, TOKENIZER = "preprocessing.json", "tokenizer.json"
LENGTH = 512  # most tokens that are read, if the model has no limit
# The mean and standard deviation of ImageNet's pixels, which torchvision's and most other networks were trained with.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find_preprocessing(preset: Preset, config: Any, folder: Path | None) -> tuple[Preprocessing, str]:
    """Return the preprocessing for a model without a run, and a sentence on its origin.

    A folder of Cutaway may contain its own preprocessing, and a folder of Hugging Face a tokenizer. Vision models get
    images of their size.

    Raises:
        DataError: If there is no preprocessing.
    """
    if folder is not None and (folder / PREPROCESSING).is_file():
        return read_preprocessing(folder / PREPROCESSING), ""
    kind = input_modality(preset, config)
    if kind == "image":
        return _images(preset, config)
    if kind == "text" and folder is not None and (folder / TOKENIZER).is_file():
        return _texts(config, folder / TOKENIZER), ""
    lacking = {
        "text": "no tokenizer, which tells how text becomes tokens",
        "seq2seq": "no tokenizers, which tell how text becomes tokens",
        "table": "no columns, which tell how a row becomes numbers",
    }.get(kind, f"no preprocessing, which tells how {kind} data becomes numbers")
    raise DataError(
        f"{preset.name} has {lacking}: it cannot be shown files of yours.",
        fix="Leave INPUT out, for random examples; or train it on data like yours and give the run's folder.",
    )


def _images(preset: Preset, config: Any) -> tuple[Preprocessing, str]:
    channels, height, width = example_shape(preset, config)
    mean, std = IMAGENET if channels == 3 else ((0.5,) * channels, (0.5,) * channels)
    spec = ImageSpec(channels, height, width, _classes(config))
    made = ImagePreprocessing(spec, mean, std, "crop", (height, width), (0,) * channels)
    told = f"The images are cut to {height} × {width} and made as bright as those of ImageNet are on average: how "
    return made, told + "this model's own were prepared is not known."


def _texts(config: Any, file: Path) -> Preprocessing:
    tokenizer = open_tokenizer(file)
    length = min(LENGTH, getattr(config, "context_length", None) or LENGTH)
    vocab_size, head = config.vocab_size, getattr(config, "head", "classes")
    target: Any = _classes(config)
    if head == "masked":
        target = Masked(vocab_size, tokenizer.mask or 0)
    elif head == "next":
        target = NextToken(vocab_size)
    framed = tokenizer.begin is not None and tokenizer.end is not None and tokenizer.begin != tokenizer.end
    frame = (tokenizer.begin, tokenizer.end) if framed else (None, None)
    return TextPreprocessing(TextSpec(vocab_size, length, target, *frame), tokenizer, length)


def _classes(config: Any) -> Classes | Value:
    count = getattr(config, "num_classes", 0) or 0
    return Classes(tuple(f"class {k}" for k in range(count))) if count > 1 else Value()
