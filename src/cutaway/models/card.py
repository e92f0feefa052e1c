"""The card of an architecture: the facts that its file is held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """What one preset must count to, and who says so."""

    parameters: int | None = None  # trainable parameters; None where nobody published a count
    multiply_adds: int | None = None  # of convolutions and matrix products, for one example of shape `at`
    at: tuple[int, ...] = ()  # the shape of that example, (C, H, W) for images
    source: str = ""  # where the counts come from; what nobody published begins with "computed"
    paper: str = ""  # what the paper prints where its own definition counts to something else: "65 M, Table 3"

    @property
    def by(self) -> str:
        """Whether the counts are published, or computed because nobody published any."""
        return "computed" if self.source.startswith("computed") else "published"


@dataclass(frozen=True)
class Divergence:
    """One point where the paper, this file and common implementations are not the same network."""

    what: str
    paper: str
    here: str
    common: str = ""


@dataclass(frozen=True)
class Card:
    """The facts of one architecture family. `published`, `settings` and `fine_tuning` are by preset."""

    title: str  # of the paper
    authors: str
    year: int
    link: str
    family: str  # dense, cnn, rnn, graph, transformer
    equation: str  # the defining equation, in the paper's notation
    oracle: str  # the independent implementation that outputs and gradients are compared with
    published: Mapping[str, Published]
    divergences: tuple[Divergence, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # training settings that suit a preset
    fine_tuning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # others, where it begins with weights

    def __repr__(self) -> str:
        return f"Card({self.title!r}, {self.year})"

    def to_json(self) -> dict[str, Any]:
        """What is so of the whole family, as JSON values."""
        facts = ("title", "authors", "year", "link", "family", "equation", "oracle")
        return {name: getattr(self, name) for name in facts} | {"divergences": [asdict(d) for d in self.divergences]}


@dataclass(frozen=True)
class PresetCard:
    """A card as seen by one preset: `cutaway.card("resnet18").published_parameters`."""

    name: str
    card: Card

    def __repr__(self) -> str:
        return f"PresetCard({self.name!r}, {self.card!r})"

    @property
    def published(self) -> Published:
        """The counts that this preset is held to."""
        return self.card.published.get(self.name, Published())

    @property
    def published_parameters(self) -> int | None:
        """The published number of trainable parameters; None where there is none."""
        return self.published.parameters

    @property
    def published_multiply_adds(self) -> int | None:
        """The published multiply-adds for one example; None where there are none."""
        return self.published.multiply_adds

    @property
    def settings(self) -> Mapping[str, Any]:
        """The training settings that suit this preset, used unless others are given."""
        return self.card.settings.get(self.name, {})

    @property
    def fine_tuning(self) -> Mapping[str, Any]:
        """What of these is otherwise where the preset begins with somebody's weights."""
        return self.card.fine_tuning.get(self.name, {})
