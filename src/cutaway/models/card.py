"""The card of an architecture: facts about it that the tests verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """The parameter and multiply-add counts of one preset, and their source."""

    parameters: int | None = None  # trainable parameters; None if no count is published
    multiply_adds: int | None = None  # of convolutions and matrix products, for one example of shape `at`
    at: tuple[int, ...] = ()  # the shape of that example, (C, H, W) for images
    source: str = ""  # source of the counts; begins with "computed" if they are not published
    paper: str = ""  # count in the paper, if it differs from its own definition: "65 M, Table 3"

    @property
    def by(self) -> str:
        """ "published", or "computed" if no counts are published."""
        return "computed" if self.source.startswith("computed") else "published"


@dataclass(frozen=True)
class Result:
    """A published score of a network with trained weights. It was not measured with Cutaway.

    `scores` has the value of each metric, as printed in the source. Scores with different protocols do not compare:
    ten crops of an image give a lower error than one.
    """

    dataset: str  # ImageNet, CIFAR-10, GLUE
    scores: Mapping[str, float]  # metric → value: {"top-1 error": 24.7, "top-5 error": 7.8}
    protocol: str  # single crop, 10 crops, zero-shot
    source: str  # the paper's table, the authors' release, or the weights of a library
    unit: str = "%"

    def __str__(self) -> str:
        unit = self.unit and f" {self.unit}"
        return ", ".join(f"{metric} {value}{unit}" for metric, value in self.scores.items())

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {**asdict(self), "scores": dict(self.scores)}


def torchvision_accuracy(weights: str, top1: float, top5: float) -> Result:
    """Return the ImageNet result of weights of torchvision, from its metadata.

    Args:
        weights: Name of the weights, e.g. `ResNet50_Weights.IMAGENET1K_V1`.
        top1: Top-1 accuracy in percent.
        top5: Top-5 accuracy in percent.
    """
    scores = {"top-1 accuracy": top1, "top-5 accuracy": top5}
    return Result("ImageNet", scores, "single crop", f"torchvision, {weights}")


def imagenet_error(top1: float | None, top5: float | None, protocol: str, source: str) -> Result:
    """Return an ImageNet result of a paper.

    Args:
        top1: Top-1 error in percent, or None if it was not published.
        top5: Top-5 error in percent, or None if it was not published.
        protocol: Crops and networks of a prediction.
        source: Table of the paper, or the release.
    """
    errors = {"top-1 error": top1, "top-5 error": top5}
    scores = {metric: value for metric, value in errors.items() if value is not None}
    return Result("ImageNet", scores, protocol, source)


@dataclass(frozen=True)
class Divergence:
    """A difference between the paper, this implementation and common implementations."""

    what: str
    paper: str
    here: str
    common: str = ""


@dataclass(frozen=True)
class Card:
    """The facts of one architecture family.

    `published`, `settings`, `fine_tuning` and `results` are keyed by preset.
    """

    title: str  # title of the paper
    authors: str
    year: int
    link: str
    family: str  # dense, cnn, rnn, graph, transformer
    equation: str  # the defining equation, in the paper's notation
    oracle: str  # the reference implementation whose outputs and gradients are compared
    published: Mapping[str, Published]
    divergences: tuple[Divergence, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # recommended training settings
    fine_tuning: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # changes to them with pretrained weights
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)  # published scores, each with its source

    def __repr__(self) -> str:
        return f"Card({self.title!r}, {self.year})"

    def to_json(self) -> dict[str, Any]:
        """Return the facts of the whole family as JSON values."""
        facts = ("title", "authors", "year", "link", "family", "equation", "oracle")
        return {name: getattr(self, name) for name in facts} | {"divergences": [asdict(d) for d in self.divergences]}


@dataclass(frozen=True)
class PresetCard:
    """The card of one preset: `cutaway.card("resnet18").published_parameters`."""

    name: str
    card: Card

    def __repr__(self) -> str:
        return f"PresetCard({self.name!r}, {self.card!r})"

    @property
    def published(self) -> Published:
        """The published counts of this preset."""
        return self.card.published.get(self.name, Published())

    @property
    def published_parameters(self) -> int | None:
        """The published number of trainable parameters, or None."""
        return self.published.parameters

    @property
    def published_multiply_adds(self) -> int | None:
        """The published multiply-adds for one example, or None."""
        return self.published.multiply_adds

    @property
    def settings(self) -> Mapping[str, Any]:
        """The recommended training settings of this preset, used as defaults."""
        return self.card.settings.get(self.name, {})

    @property
    def fine_tuning(self) -> Mapping[str, Any]:
        """The changes to these settings for fine-tuning from pretrained weights."""
        return self.card.fine_tuning.get(self.name, {})

    @property
    def published_results(self) -> tuple[Result, ...]:
        """The published scores of this preset, from the paper or from weights of a library; often none."""
        return tuple(self.card.results.get(self.name, ()))
