"""Inputs of exported graphs, by kind of data: names, free dimensions, preprocessing layers and random test inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core.spec import (
    AudioSpec,
    GraphSpec,
    ImageSpec,
    PairSpec,
    SeriesSpec,
    Spelled,
    TableSpec,
    TextSpec,
    Tokens,
    VideoSpec,
)
from ..data.audio.transforms import AudioPreprocessing, hop_length, window_length
from ..data.dataset_base import Preprocessing
from ..data.images.captioning import CaptionPreprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.series.transforms import ForecastPreprocessing, SeriesPreprocessing
from ..data.tables.column_types import Category, Numeric
from ..data.tables.transforms import TablePreprocessing
from ..data.video.transforms import VideoPreprocessing
from .preprocessing_graph import (
    EdgeFeatureInputs,
    GraphLevelInputs,
    IdentityPreprocessing,
    LogMelFrontend,
    PerSeriesStandardizer,
    ResizeNormalize,
    Standardizer,
    TableEncoder,
)

LONGEST = 128  # tokens or frames of the longest test input
MANY = 24  # nodes of the largest test input
# Number of examples and relative length of the three test inputs. The first is used for tracing. No two sizes are
# equal unless they must be, because the tracer would treat them as one size.
SIZES = ((2, 0.75), (3, 1.0), (1, 0.5))
Draw = Callable[[int, float, torch.Generator], tuple[Tensor, ...]]


@dataclass(frozen=True)
class GraphForm:
    """Inputs of an exported graph."""

    names: tuple[str, ...]
    free: tuple[tuple[int, ...], ...]  # dimensions of each input that may have any size
    draw: Draw  # draws that number of examples, of that fraction of the maximum length
    front: nn.Module = field(default_factory=IdentityPreprocessing)

    def dynamic(self) -> tuple[dict[int, Any], ...]:
        """Return the free dimensions in the format of torch.export."""
        return tuple(dict.fromkeys(dims, torch.export.Dim.DYNAMIC) for dims in self.free)

    def inputs(self) -> list[tuple[Tensor, ...]]:
        """Return the inputs for tracing and inputs of two other sizes."""
        generator = torch.Generator().manual_seed(0)
        return [self.draw(rows, part, generator) for rows, part in SIZES]


def graph_form(preprocessing: Preprocessing) -> GraphForm:
    """Return the form of a run's inputs, by its preprocessing."""
    spec, given = preprocessing.spec, preprocessing
    if isinstance(spec, TableSpec):
        assert isinstance(given, TablePreprocessing)
        return _table(given)
    if isinstance(spec, ImageSpec):
        return _images(spec, given)
    if isinstance(spec, VideoSpec):
        assert isinstance(given, VideoPreprocessing)
        return _videos(spec, given)
    if isinstance(spec, TextSpec):
        return _texts(spec)
    if isinstance(spec, PairSpec):
        return _pairs(spec)
    if isinstance(spec, SeriesSpec):
        assert isinstance(given, SeriesPreprocessing | ForecastPreprocessing)
        return _series(spec, given)
    if isinstance(spec, AudioSpec):
        assert isinstance(given, AudioPreprocessing)
        return _audio(spec, given)
    return _graphs(spec)


def _table(given: TablePreprocessing) -> GraphForm:
    numeric = [e for e in given.encoders if isinstance(e, Numeric)]
    categories = [e for e in given.encoders if isinstance(e, Category)]

    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        del part
        spread = torch.tensor([[e.scale for e in numeric], [e.fill for e in numeric]], dtype=torch.float64)
        numbers = torch.randn(rows, len(numeric), generator=generator, dtype=torch.float64) * spread[0] + spread[1]
        numbers[-1:, :1] = torch.nan  # a missing cell
        places = torch.rand(rows, len(categories), generator=generator)
        codes = (places * torch.tensor([float(len(e.features)) for e in categories])).long()
        return tuple(x for x, there in ((numbers, numeric), (codes, categories)) if there)

    names = tuple(name for name, there in (("numbers", numeric), ("codes", categories)) if there)
    return GraphForm(names, ((0,),) * len(names), draw, TableEncoder(given.encoders))


def _images(spec: ImageSpec, given: Preprocessing) -> GraphForm:
    images = given.images if isinstance(given, CaptionPreprocessing) else given
    target = spec.target

    def beside(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        if not isinstance(target, Tokens):
            return ()
        return _tokens(rows, part, max(8, target.longest), target.vocab_size, generator)[:1]

    more = ("target_so_far",) if isinstance(target, Tokens) else ()
    if not isinstance(images, ImagePreprocessing):  # arrays of numbers, which the preprocessing standardizes

        def numbers(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
            return torch.randn(rows, *spec.shape, generator=generator), *beside(rows, part, generator)

        return GraphForm(("x", *more), ((0,), *((0, 1) for _ in more)), numbers)

    def pixels(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        size = (rows, *_size(spec, part), spec.channels)
        drawn = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)
        return drawn, *beside(rows, part, generator)

    return GraphForm(("pixels", *more), ((0, 1, 2), *((0, 1) for _ in more)), pixels, ResizeNormalize(images))


def _videos(spec: VideoSpec, given: VideoPreprocessing) -> GraphForm:
    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        frames = max(2, round(spec.frames * part))
        size = (rows, frames, *_size(spec, part), spec.channels)
        return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8), _mask(rows, frames)

    return GraphForm(("pixels", "mask"), ((0, 1, 2, 3), (0, 1)), draw, ResizeNormalize(given.images))


def _size(spec: ImageSpec | VideoSpec, part: float) -> tuple[int, int]:
    """Return height and width of test images.

    They are larger and smaller than the network's input, and have different aspect ratios.
    """
    return round(spec.height * (0.5 + part)) + 3, round(spec.width * (1.6 - part)) + 1


def _texts(spec: TextSpec) -> GraphForm:
    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        return _tokens(rows, part, spec.longest, spec.vocab_size, generator)

    return GraphForm(("tokens", "mask"), ((0, 1), (0, 1)), draw)


def _pairs(spec: PairSpec) -> GraphForm:
    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        source = _tokens(rows, part, spec.longest, spec.vocab_size, generator)
        return *source, _tokens(rows, 1.3 - part, spec.target.longest, spec.target.vocab_size, generator)[0]

    return GraphForm(("source", "mask", "target_so_far"), ((0, 1),) * 3, draw)


def _series(spec: SeriesSpec, given: SeriesPreprocessing | ForecastPreprocessing) -> GraphForm:
    several = list(given.scales.values()) if isinstance(given, ForecastPreprocessing) else []

    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        del part
        found = [torch.randn(rows, *spec.shape, generator=generator, dtype=torch.float64)]
        if spec.known_future:
            steps = getattr(spec.target, "steps", 1)
            found.append(torch.randn(rows, steps, spec.known_future, generator=generator, dtype=torch.float64))
        of_rows = [several[row % len(several)] if several else (given.mean, given.std) for row in range(rows)]
        mean, std = torch.tensor(of_rows, dtype=torch.float64).unbind(1)  # (N, F) each
        found = [x * std[:, None, -x.shape[2] :] + mean[:, None, -x.shape[2] :] for x in found]
        return (*found, mean, std) if several else tuple(found)

    names = ("series", *(("known_future",) if spec.known_future else ()), *(("mean", "std") if several else ()))
    front = PerSeriesStandardizer() if several else Standardizer(given.mean, given.std)
    return GraphForm(names, ((0,),) * len(names), draw, front)


def _audio(spec: AudioSpec, given: AudioPreprocessing) -> GraphForm:
    most = min(spec.frames, LONGEST) * hop_length(given.rate) + window_length(given.rate)
    spelled = isinstance(spec.target, Spelled)

    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        count = round(most * part)
        mask = _mask(rows, count, count // 3)
        samples = (torch.randn(rows, count, generator=generator) / 8).masked_fill(~mask, 0)
        if not isinstance(spec.target, Spelled):
            return samples, mask
        return samples, mask, _tokens(rows, part, spec.target.longest, spec.target.outputs, generator)[0]

    names = ("samples", "mask", *(("target_so_far",) if spelled else ()))
    return GraphForm(names, ((0, 1),) * len(names), draw, LogMelFrontend(given))


def _graphs(spec: GraphSpec) -> GraphForm:
    described = bool(spec.edge_features)

    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        nodes = max(6, round(MANY * part))
        edges = nodes * (rows + 1)
        x = torch.randn(nodes, spec.features, generator=generator)
        edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
        asked = torch.randperm(nodes, generator=generator)[: rows + 1]
        if spec.graph_level:
            asked = torch.arange(nodes) * rows // nodes  # the graph of each
        beside = (torch.randn(edges, spec.edge_features, generator=generator),) if described else ()
        return x, edge_index, asked, *beside

    names = ("x", "edge_index", "batch" if spec.graph_level else "rows", *(("edge_attr",) if described else ()))
    front = GraphLevelInputs() if spec.graph_level else EdgeFeatureInputs() if described else IdentityPreprocessing()
    return GraphForm(names, ((0,), (1,), (0,), (0,))[: len(names)], draw, front)


def _tokens(rows: int, part: float, longest: int, vocab_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    length = max(2, round(min(longest, LONGEST) * part))
    tokens, mask = torch.randint(1, vocab_size, (rows, length), generator=generator), _mask(rows, length)
    return tokens.masked_fill(~mask, 0), mask


def _mask(rows: int, length: int, padding: int = 1) -> Tensor:
    """Return a mask of real positions. Only the last of several rows ends in padding."""
    mask = torch.ones(rows, length, dtype=torch.bool)
    if rows > 1:
        mask[-1, length - padding :] = False
    return mask


def raw_inputs(names: Sequence[str], inputs: Sequence[Tensor], numeric: int) -> tuple[Tensor, ...]:
    """Return the inputs of the graph from a batch of the raw preprocessing.

    A batch of a table is one tensor: the first `numeric` columns are numbers, the rest are codes. Empty inputs of
    graphs are left out.
    """
    if "codes" in names or "numbers" in names:
        columns = inputs[0]
        parts = (columns[:, :numeric], columns[:, numeric:].long())
        return tuple(part for part in parts if part.shape[1])
    if "batch" in names:
        return *inputs[:2], *inputs[3:]
    if "edge_attr" in names:
        return *inputs[:3], *inputs[4:]
    return tuple(inputs)
