"""The chapters in order. The text of chapter 5 is docs/course/05-….md; its exercises are in chapter_05.py."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from ...core.errors import SettingError, shorten_repr
from .exercises import Exercise


@dataclass(frozen=True)
class Chapter:
    """One chapter: its number and title."""

    number: int
    title: str

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """Exercises of the chapter, in the order of the text."""
        module = import_module(f"{__package__}.chapter_{self.number:02}")
        return tuple(module.EXERCISES)


CHAPTERS = (
    Chapter(1, "The neuron, and what one of them cannot do"),
    Chapter(2, "Layers, activations, and what they can be made into"),
    Chapter(3, "Losses, and back-propagation by hand"),
    Chapter(4, "Optimizers and schedules"),
    Chapter(5, "Convolution, from signals to networks"),
    Chapter(6, "LeNet to DenseNet, and why depth needed shortcuts"),
    Chapter(7, "Normalization, and what it does to depth and rates"),
    Chapter(8, "Words as vectors"),
    Chapter(9, "Recurrence, gates and time"),
    Chapter(10, "Sequences to sequences, and attention"),
    Chapter(11, "Self-attention, W_QK and the residual stream"),
    Chapter(12, "The Transformer, whole"),
    Chapter(13, "BERT, GPT and their kin: pre-training and fine-tuning"),
    Chapter(14, "Patches and pictures: the Vision Transformer"),
    Chapter(15, "Graphs"),
    Chapter(16, "Beyond labels, thinking in steps, smaller and safer"),
)


def chapter(number: str | int) -> Chapter:
    """Return the chapter with a number such as 5 or "05". Raises SettingError if it does not exist."""
    found = {one.number: one for one in CHAPTERS}
    words = str(number)
    if not (words.isdecimal() and len(words) < 4 and int(words) in found):
        raise SettingError(
            f"There is no chapter {shorten_repr(number)}: they are 1 to {len(CHAPTERS)}. `cutaway course` lists them."
        )
    return found[int(words)]
