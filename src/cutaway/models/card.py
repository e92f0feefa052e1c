"""Cards: the paper, the published counts and scores, and the divergences of an architecture, verified by tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """The numbers of parameters and multiply-adds of one preset, and their source.

    Example:
        >>> published = Published(25_557_032, multiply_adds=4_089_184_256, at=(3, 224, 224), source="torchvision")
        >>> published.by
        'published'
    """

    parameters: int | None = None  # number of trainable parameters; None if no count is published
    multiply_adds: int | None = None  # multiply-adds of convolutions and matrix products for one example; None: unknown
    at: tuple[int, ...] = ()  # shape of that example, (C, H, W) for images
    source: str = ""  # source of the counts; begins with "computed" if they are not published
    paper: str = ""  # count stated in the paper, if it differs from that of the architecture: "65 M, Table 3"

    @property
    def by(self) -> str:
        """The string "computed" if `source` begins with it, else "published"."""
        return "computed" if self.source.startswith("computed") else "published"


@dataclass(frozen=True)
class Result:
    """A published score of trained weights, which was not measured with Cutaway.

    Scores with different protocols are not comparable: ten crops of an image give a lower error than one.

    Example:
        >>> result = Result("ImageNet", {"top-1 error": 24.7, "top-5 error": 7.8}, "single crop", "Table 3")
        >>> print(result)
        top-1 error 24.7 %, top-5 error 7.8 %
    """

    dataset: str  # name of the data set, such as ImageNet
    scores: Mapping[str, float]  # value of each metric, as printed in the source
    protocol: str  # how the score was measured: single crop, 10 crops, zero-shot
    source: str  # table of the paper, release of the authors, or weights of a library
    unit: str = "%"  # unit of the scores

    def __str__(self) -> str:
        unit = self.unit and f" {self.unit}"
        return ", ".join(f"{metric} {value}{unit}" for metric, value in self.scores.items())

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values."""
        return {**asdict(self), "scores": dict(self.scores)}


def torchvision_accuracy(weights: str, top1: float, top5: float) -> Result:
    """Return the ImageNet result of weights of torchvision, for a card.

    Args:
        weights: Name of the weights, e.g. `ResNet50_Weights.IMAGENET1K_V1`.
        top1: Top-1 accuracy in percent, from the metadata of the weights.
        top5: Top-5 accuracy in percent, from the metadata of the weights.

    Example:
        >>> result = torchvision_accuracy("ResNet50_Weights.IMAGENET1K_V1", 76.13, 92.862)
        >>> result.source, result.scores["top-1 accuracy"]
        ('torchvision, ResNet50_Weights.IMAGENET1K_V1', 76.13)
    """
    scores = {"top-1 accuracy": top1, "top-5 accuracy": top5}
    return Result("ImageNet", scores, "single crop", f"torchvision, {weights}")


def imagenet_error(top1: float | None, top5: float | None, protocol: str, source: str) -> Result:
    """Return the ImageNet result of a paper, for a card.

    Args:
        top1: Top-1 error in percent; None if it was not published.
        top5: Top-5 error in percent; None if it was not published.
        protocol: Number of crops and of networks that a prediction is averaged over.
        source: Table of the paper, or release of the authors.

    Example:
        >>> print(imagenet_error(None, 15.3, "10 crops, 7 networks", "abstract"))
        top-5 error 15.3 %
    """
    errors = {"top-1 error": top1, "top-5 error": top5}
    scores = {metric: value for metric, value in errors.items() if value is not None}
    return Result("ImageNet", scores, protocol, source)


@dataclass(frozen=True)
class Divergence:
    """A difference between the paper, this implementation and common implementations.

    Example:
        >>> Divergence("pooling", paper="average, with weights", here="the same", common="maximum").common
        'maximum'
    """

    what: str  # the part of the architecture
    paper: str  # as in the paper
    here: str  # as in Cutaway
    common: str = ""  # as in common implementations, if that is a third way


@dataclass(frozen=True)
class Card:
    """The card of an architecture, shared by its presets.

    Example:
        >>> from cutaway.models.registry import preset
        >>> found = preset("resnet50").card.card
        >>> found.title, found.year, found.family
        ('Deep residual learning for image recognition', 2015, 'cnn')
        >>> found.settings["resnet18"]["optimizer"]
        'momentum'
    """

    title: str  # title of the paper
    authors: str  # authors of the paper
    year: int  # year of publication
    link: str  # address of the paper
    family: str  # such as dense, cnn, rnn, graph, transformer; `list_models` selects by it
    equation: str  # the defining equation, in the paper's notation
    oracle: str  # the reference implementation with which outputs and gradients are compared
    published: Mapping[str, Published]  # published counts of each preset, by its name
    divergences: tuple[Divergence, ...] = ()  # differences from the paper
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # training settings of each preset
    fine_tuning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # changes to them for pretrained weights
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)  # published scores of each preset

    def __repr__(self) -> str:
        return f"Card({self.title!r}, {self.year})"

    def to_json(self) -> dict[str, Any]:
        """Return the facts that all presets share, from the title to the divergences, as JSON values."""
        facts = ("title", "authors", "year", "link", "family", "equation", "oracle")
        return {name: getattr(self, name) for name in facts} | {"divergences": [asdict(d) for d in self.divergences]}


@dataclass(frozen=True)
class PresetCard:
    """The card of one preset, as `cutaway.card` returns it.

    Example:
        >>> from cutaway.models.registry import card
        >>> found = card("resnet50")
        >>> found.published_parameters, found.published.at
        (25557032, (3, 224, 224))
        >>> print(found.published_results[0])
        top-1 accuracy 76.13 %, top-5 accuracy 92.862 %
    """

    name: str  # name of the preset
    card: Card  # card of the architecture

    def __repr__(self) -> str:
        return f"PresetCard({self.name!r}, {self.card!r})"

    @property
    def published(self) -> Published:
        """The published counts of this preset; a `Published` without values if there are none."""
        return self.card.published.get(self.name, Published())

    @property
    def published_parameters(self) -> int | None:
        """The published number of trainable parameters; None if there is none."""
        return self.published.parameters

    @property
    def published_multiply_adds(self) -> int | None:
        """The published multiply-adds for one example; None if there are none."""
        return self.published.multiply_adds

    @property
    def settings(self) -> Mapping[str, Any]:
        """The training settings of this preset, which `cutaway.train` uses as defaults."""
        return self.card.settings.get(self.name, {})

    @property
    def fine_tuning(self) -> Mapping[str, Any]:
        """The changes to `settings` when training starts from pretrained weights."""
        return self.card.fine_tuning.get(self.name, {})

    @property
    def published_results(self) -> tuple[Result, ...]:
        """The published scores of this preset, of its paper or of weights of a library; empty if there are none."""
        return tuple(self.card.results.get(self.name, ()))
