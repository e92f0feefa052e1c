"""The card of an architecture: facts about it that the tests verify."""

from __future__ import annotations

from collections.abc import Mapping
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
class Divergence:
    """A difference between the paper, this implementation and common implementations."""

    what: str
    paper: str
    here: str
    common: str = ""


@dataclass(frozen=True)
class Card:
    """The facts of one architecture family. `published`, `settings` and `fine_tuning` are keyed by preset."""

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
