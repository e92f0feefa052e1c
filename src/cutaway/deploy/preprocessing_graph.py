"""Inputs and preprocessing layers of exported graphs: the run's preprocessing, from decoded files on.

Each layer converts raw inputs to those of the model. Values that decide how a pixel is rounded are computed in float64
and in the same order as in the run. `graph_inputs` returns the names and free dimensions of the inputs of a kind of
data, its layer, and random inputs for tracing and testing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
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
from ..data.audio.transforms import FLOOR, AudioPreprocessing, hop_length, mel_filters, transform_size, window_length
from ..data.dataset_base import Preprocessing
from ..data.images.captioning import CaptionPreprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.series.transforms import ForecastPreprocessing, SeriesPreprocessing
from ..data.tables.column_types import CYCLES, Category, Encoder, Numeric
from ..data.tables.transforms import TablePreprocessing
from ..data.video.transforms import VideoPreprocessing

ONE = 1 << 22  # Pillow's weights are integers in units of 1/ONE


class ResizeNormalize(nn.Module):
    """Resizing and normalization of uint8 pixels (N, h, w, C), of any one size, to (N, C, H, W).

    Videos are (N, T, h, w, C). Resizing is Pillow's bilinear filter with antialiasing: one line of integer weights for
    each row and column, and both passes are rounded to integer levels (Pillow's src/libImaging/Resample.c). The
    vertical pass is last, as always in Pillow up to 12. Pillow 13 does it first if that is cheaper, which changes some
    pixels by one level of 255. An image that has the network's size already is unchanged.
    """

    mean: Tensor
    std: Tensor
    background: Tensor

    def __init__(self, images: ImagePreprocessing) -> None:
        super().__init__()
        self.size, self.box, self.fit = (images.spec.height, images.spec.width), images.box, images.fit
        for name, values in (("mean", images.mean), ("std", images.std)):
            levels = torch.tensor(values, dtype=torch.float64).mul(255).float().view(1, -1, 1, 1)
            self.register_buffer(name, levels)
        self.register_buffer("background", torch.tensor(images.background, dtype=torch.float64).view(1, -1, 1, 1))

    def forward(self, pixels: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Return the network's input, and all other inputs unchanged: a partial caption, or the mask of a video."""
        if pixels.ndim == 4:
            return self._images(pixels), *rest
        n, frames, height, width, channels = pixels.shape
        x = self._images(pixels.reshape(n * frames, height, width, channels))
        x = x.view(n, frames, *x.shape[1:])  # (N, T, C, H, W)
        return x.masked_fill(~rest[0][:, :, None, None, None], 0), *rest

    def _images(self, pixels: Tensor) -> Tensor:
        levels = pixels.permute(0, 3, 1, 2).double()  # (N, C, h, w)
        down, across, inside = self._weights(levels.shape[2], levels.shape[3])
        levels = _round_levels(levels @ across.t())  # (N, C, h, W)
        levels = _round_levels(down @ levels)  # (N, C, H, W)
        levels = torch.where(inside, levels, self.background)
        return (levels.float() - self.mean) / self.std

    def _weights(self, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of rows (H, h) and of columns (W, w), and a mask (H, W) of pixels that show the image."""
        (rows, columns), rows_in, columns_in = self.size, torch.arange(height), torch.arange(width)
        h, w = (torch.ones_like(x, dtype=torch.float64).sum() for x in (rows_in, columns_in))  # sizes as tensors
        zero = torch.zeros_like(h)
        if self.fit == "pad":
            # A number divided by a tensor is computed as a product with 1/tensor, whose last digit can differ.
            scale = torch.minimum((zero + self.box[0]) / h, (zero + self.box[1]) / w)
            drawn_h, drawn_w = ((side * scale).round().clamp(min=1) for side in (h, w))
            top, left = ((whole - drawn) // 2 for whole, drawn in ((rows, drawn_h), (columns, drawn_w)))
            down, seen_rows = _resample_weights(rows_in, h, zero, h, rows, drawn_h, top)
            across, seen_columns = _resample_weights(columns_in, w, zero, w, columns, drawn_w, left)
            return down, across, seen_rows[:, None] & seen_columns
        above, aside = zero, zero
        if self.fit == "crop":
            above, aside = ((h - w * rows / columns) / 2).clamp(min=0), ((w - h * columns / rows) / 2).clamp(min=0)
            wide = w * rows > h * columns
            whole_h, whole_w = ~wide & (w == columns), wide & (h == rows)  # no scaling: crop whole pixels
            above, aside = torch.where(whole_h, above.floor(), above), torch.where(whole_w, aside.floor(), aside)
            end_h = torch.where(whole_h, above + rows, h - above)
            end_w = torch.where(whole_w, aside + columns, w - aside)
        else:
            end_h, end_w = h, w
        down, seen_rows = _resample_weights(rows_in, h, above, end_h, rows, zero + rows, zero)
        across, seen_columns = _resample_weights(columns_in, w, aside, end_w, columns, zero + columns, zero)
        return down, across, seen_rows[:, None] & seen_columns


def _resample_weights(
    inputs: Tensor, size: Tensor, begin: Tensor, end: Tensor, outputs: int, drawn: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weights (outputs, size) of one direction, in units of 1/ONE, and the mask of image outputs.

    The part of the image from `begin` to `end` is drawn on `drawn` outputs, starting at `first`. `inputs` are the
    indices of its pixels.
    """
    begin, end = begin.float(), end.float()  # Pillow stores boxes in float32
    scale = (end - begin).double() / drawn
    wide = scale.clamp(min=1)
    place = torch.arange(outputs, dtype=torch.float64) - first
    centre = (begin.double() + (place + 0.5) * scale)[:, None]  # (outputs, 1)
    low = (centre - wide + 0.5).trunc()
    high = torch.minimum((centre + wide + 0.5).trunc(), size)
    x = inputs.double()
    weights = (1 - ((x - centre + 0.5) * (1 / wide)).abs()).clamp(min=0) * ((x >= low) & (x < high))
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-9)  # (outputs, size)
    return (weights * ONE + 0.5).floor(), (place >= 0) & (place < drawn)


def _round_levels(sums: Tensor) -> Tensor:
    """Round sums in units of 1/ONE to integer levels."""
    return ((sums + ONE // 2) / ONE).floor().clamp(0, 255)


class TableEncoder(nn.Module):
    """Encoding of a table's columns as (N, F) float32.

    The inputs are numbers float64 (N, n), NaN for missing cells, and codes of categories int64 (N, c): the index of the
    input that is set.

    Constants are buffers, because torch's exporter to ONNX rounds Python numbers to float32 (torch 2.13). The angle of
    a date in the year, at 19,000 days since 1970, would have only four digits left.
    """

    turn: Tensor

    def __init__(self, encoders: tuple[Encoder, ...]) -> None:
        super().__init__()
        self.encoders = encoders
        self.numeric = [e for e in encoders if isinstance(e, Numeric)]
        self.register_buffer("turn", torch.tensor(2 * np.pi, dtype=torch.float64))
        for k, encoder in enumerate(self.numeric):
            numbers = (encoder.fill, encoder.mean, encoder.scale, *(CYCLES[cycle] for cycle in encoder.cycles))
            self.register_buffer(f"numbers{k}", torch.tensor(numbers, dtype=torch.float64))
            if encoder.curve:
                self.register_buffer(f"curve{k}", torch.tensor(encoder.curve, dtype=torch.float64).t().contiguous())

    def forward(self, *columns: Tensor) -> tuple[Tensor]:
        """Encode `columns`: the numbers, if there are any, and the codes, if there are any."""
        numbers = columns[0] if self.numeric else None
        blocks, number, category = [], 0, 0
        for encoder in self.encoders:
            if isinstance(encoder, Category):
                slots = torch.arange(len(encoder.features))
                blocks.append((columns[-1][:, category, None] == slots).float())
                category += 1
                continue
            assert numbers is not None
            blocks.append(self._number(number, encoder, numbers[:, number]).float())
            number += 1
        return (torch.cat(blocks, 1),)

    def _number(self, k: int, encoder: Numeric, values: Tensor) -> Tensor:
        """Return the inputs (N, features) of one column of numbers (N,), as computed by `Numeric.encode`."""
        gaps = values.isnan()
        fill, mean, scale, *periods = self.get_buffer(f"numbers{k}").unbind()
        values = torch.where(gaps, fill, values)
        scaled = self._interpolate(k, values) if encoder.curve else (values - mean) / scale
        columns = [scaled]
        for period in periods:
            angle = self.turn * values / period
            columns += [torch.where(gaps, 0.0, angle.sin()), torch.where(gaps, 0.0, angle.cos())]
        if encoder.missing:
            columns.append(gaps.double())
        return torch.stack(columns, 1)

    def _interpolate(self, k: int, values: Tensor) -> Tensor:
        """Apply numpy.interp with the column's curve, clipped at its ends."""
        quantiles, places = self.get_buffer(f"curve{k}").unbind()
        if len(quantiles) == 1:
            return torch.full_like(values, 0.0) + places
        values = torch.minimum(torch.maximum(values, quantiles[0]), quantiles[-1])
        at = (values[:, None] >= quantiles).sum(1).clamp(1, len(quantiles) - 1) - 1
        slope = (places[1:] - places[:-1]) / (quantiles[1:] - quantiles[:-1])
        found: Tensor = places[at] + slope[at] * (values - quantiles[at])
        return found


class LogMelFrontend(nn.Module):
    """Log-mel frames (N, T, F) of samples (N, n), with masks, as in `data.audio.transforms`.

    The Fourier transform is a product with sines and cosines, in float64.
    """

    waves: Tensor
    filters: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, audio: AudioPreprocessing) -> None:
        super().__init__()
        rate, bands = audio.rate, audio.spec.n_mels
        self.length, self.hop, size = window_length(rate), hop_length(rate), transform_size(rate, bands)
        window = torch.hann_window(self.length, dtype=torch.float64)
        turn = (
            torch.arange(self.length, dtype=torch.float64)[:, None] * torch.arange(size // 2 + 1) * (2 * np.pi / size)
        )
        waves = torch.cat([turn.cos(), turn.sin()], 1) * (window / window.sum())[:, None]
        self.register_buffer("waves", waves)  # (L, K + 2)
        self.register_buffer("filters", mel_filters(rate, bands, size).t().contiguous())  # (K/2 + 1, F)
        self.register_buffer("mean", torch.tensor(audio.mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(audio.std, dtype=torch.float32))

    def forward(self, samples: Tensor, mask: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Return the frames, their mask, and all other inputs unchanged: a partial transcript.

        Frames after the last real one are padding by the mask.
        """
        samples = torch.where(mask, samples, 0.0)
        padded = nn.functional.pad(samples, (0, self.length))
        starts = torch.arange(samples.shape[1] // self.hop + 1) * self.hop  # frames that begin within the samples
        windows = padded[:, starts[:, None] + torch.arange(self.length)]  # (N, T, L)
        spectrum = windows.double() @ self.waves  # (N, T, K + 2)
        real, imaginary = spectrum.square().chunk(2, dim=2)
        power = real + imaginary  # (N, T, K/2 + 1)
        frames = (power @ self.filters).clamp(min=FLOOR).log().float()  # (N, T, F)
        lengths = mask.sum(1)
        counts = 1 + ((lengths - self.length).clamp(min=0) + self.hop - 1) // self.hop  # (N,)
        sounds = torch.arange(frames.shape[1]) < counts[:, None]  # (N, T)
        return ((frames - self.mean) / self.std).masked_fill(~sounds[:, :, None], 0), sounds, *rest


class Standardizer(nn.Module):
    """Standardization of series float64 (N, T, F) and of variables that are known in advance (N, H, K)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float64))

    def forward(self, series: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
        """Return float32 of the same shapes. The variables that are known in advance are the last of the F."""
        return _standardize(self.mean, self.std, series, *known)


class PerSeriesStandardizer(nn.Module):
    """Standardization of windows of several series by the statistics of their series.

    The inputs are the windows, float64 (N, T, F), the variables that are known in advance (N, H, K), and the means and
    the deviations (N, F).
    """

    def forward(self, series: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Return float32 of the same shapes. The variables that are known in advance are the last of the F."""
        *known, mean, std = rest
        return _standardize(mean[:, None], std[:, None], series, *known)


def _standardize(mean: Tensor, std: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    """Standardize each part (N, T, n) by the last n of means and deviations (…, F), as float32."""
    return tuple(((x - mean[..., -x.shape[2] :]) / std[..., -x.shape[2] :]).float() for x in parts)


class GraphLevelInputs(nn.Module):
    """Inputs of a model of whole graphs: nodes, edges, the graph of each node, and edge features."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, *beside: Tensor) -> tuple[Tensor | None, ...]:
        """Insert None for the rows."""
        return x, edge_index, None, batch, *beside


class EdgeFeatureInputs(nn.Module):
    """Inputs of a model of nodes with edge features: nodes, edges, the rows to predict, and edge features."""

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor, edge_attr: Tensor) -> tuple[Tensor | None, ...]:
        """Insert None for the graph of each node."""
        return x, edge_index, rows, None, edge_attr


class IdentityPreprocessing(nn.Module):
    """Identity: the model takes the raw inputs, such as token ids."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs."""
        return inputs


class ExportModule(nn.Module):
    """Model with its preprocessing layers.

    With `mirrored` the outputs for an image and its mirror image are averaged. With `by_token` the outputs (N, T, …)
    are 0 where the mask (N, T), the second input, is False.
    """

    def __init__(self, model: nn.Module, front: nn.Module, mirrored: bool = False, by_token: bool = False) -> None:
        super().__init__()
        self.model, self.front, self.mirrored, self.by_token = model, front, mirrored, by_token

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of the model."""
        x, *rest = self.front(*inputs)
        outputs: Tensor = self.model(x, *rest)
        if self.mirrored:
            other = self.model(x.flip(3), *rest)
            outputs = (outputs + (other.flip(3) if other.ndim == 4 else other)) / 2
        if self.by_token:
            outputs = outputs.masked_fill(~rest[0][:, :, None], 0)
        return outputs


MAX_TEST_LENGTH = 128  # tokens or frames of the longest test input
MAX_TEST_NODES = 24  # nodes of the largest test input
# Number of examples and relative length of the three test inputs. The first is used for tracing. No two sizes are
# equal unless they must be, because the tracer would treat them as one size.
TEST_SIZES = ((2, 0.75), (3, 1.0), (1, 0.5))
Draw = Callable[[int, float, torch.Generator], tuple[Tensor, ...]]


@dataclass(frozen=True)
class GraphInputs:
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
        return [self.draw(rows, part, generator) for rows, part in TEST_SIZES]


def graph_inputs(preprocessing: Preprocessing) -> GraphInputs:
    """Return the form of a run's inputs, by its preprocessing."""
    spec, given = preprocessing.spec, preprocessing
    if isinstance(spec, TableSpec):
        assert isinstance(given, TablePreprocessing)
        return _table_inputs(given)
    if isinstance(spec, ImageSpec):
        return _image_inputs(spec, given)
    if isinstance(spec, VideoSpec):
        assert isinstance(given, VideoPreprocessing)
        return _video_inputs(spec, given)
    if isinstance(spec, TextSpec):
        return _text_inputs(spec)
    if isinstance(spec, PairSpec):
        return _pair_inputs(spec)
    if isinstance(spec, SeriesSpec):
        assert isinstance(given, SeriesPreprocessing | ForecastPreprocessing)
        return _series_inputs(spec, given)
    if isinstance(spec, AudioSpec):
        assert isinstance(given, AudioPreprocessing)
        return _audio_inputs(spec, given)
    return _graph_data_inputs(spec)


def _table_inputs(given: TablePreprocessing) -> GraphInputs:
    """Return the inputs of columns of a table: numbers, and codes of categories."""
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
    return GraphInputs(names, ((0,),) * len(names), draw, TableEncoder(given.encoders))


def _image_inputs(spec: ImageSpec, given: Preprocessing) -> GraphInputs:
    """Return the inputs of images: pixels, or numbers that are standardized already."""
    images = given.images if isinstance(given, CaptionPreprocessing) else given
    target = spec.target

    def beside(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        if not isinstance(target, Tokens):
            return ()
        return _random_tokens(rows, part, max(8, target.longest), target.vocab_size, generator)[:1]

    more = ("target_so_far",) if isinstance(target, Tokens) else ()
    if not isinstance(images, ImagePreprocessing):  # arrays of numbers, which the preprocessing standardizes

        def numbers(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
            return torch.randn(rows, *spec.shape, generator=generator), *beside(rows, part, generator)

        return GraphInputs(("x", *more), ((0,), *((0, 1) for _ in more)), numbers)

    def pixels(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        size = (rows, *_test_image_size(spec, part), spec.channels)
        drawn = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)
        return drawn, *beside(rows, part, generator)

    return GraphInputs(("pixels", *more), ((0, 1, 2), *((0, 1) for _ in more)), pixels, ResizeNormalize(images))


def _video_inputs(spec: VideoSpec, given: VideoPreprocessing) -> GraphInputs:
    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        frames = max(2, round(spec.frames * part))
        size = (rows, frames, *_test_image_size(spec, part), spec.channels)
        return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8), _padding_mask(rows, frames)

    return GraphInputs(("pixels", "mask"), ((0, 1, 2, 3), (0, 1)), draw, ResizeNormalize(given.images))


def _test_image_size(spec: ImageSpec | VideoSpec, part: float) -> tuple[int, int]:
    """Return height and width of test images.

    They are larger and smaller than the network's input, and have different aspect ratios.
    """
    return round(spec.height * (0.5 + part)) + 3, round(spec.width * (1.6 - part)) + 1


def _text_inputs(spec: TextSpec) -> GraphInputs:
    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        return _random_tokens(rows, part, spec.longest, spec.vocab_size, generator)

    return GraphInputs(("tokens", "mask"), ((0, 1), (0, 1)), draw)


def _pair_inputs(spec: PairSpec) -> GraphInputs:
    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        source = _random_tokens(rows, part, spec.longest, spec.vocab_size, generator)
        return *source, _random_tokens(rows, 1.3 - part, spec.target.longest, spec.target.vocab_size, generator)[0]

    return GraphInputs(("source", "mask", "target_so_far"), ((0, 1),) * 3, draw)


def _series_inputs(spec: SeriesSpec, given: SeriesPreprocessing | ForecastPreprocessing) -> GraphInputs:
    """Return the inputs of windows of series in their original units."""
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
    return GraphInputs(names, ((0,),) * len(names), draw, front)


def _audio_inputs(spec: AudioSpec, given: AudioPreprocessing) -> GraphInputs:
    """Return the inputs of samples of recordings with their mask."""
    most = min(spec.frames, MAX_TEST_LENGTH) * hop_length(given.rate) + window_length(given.rate)
    spelled = isinstance(spec.target, Spelled)

    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        count = round(most * part)
        mask = _padding_mask(rows, count, count // 3)
        samples = (torch.randn(rows, count, generator=generator) / 8).masked_fill(~mask, 0)
        if not isinstance(spec.target, Spelled):
            return samples, mask
        return samples, mask, _random_tokens(rows, part, spec.target.longest, spec.target.outputs, generator)[0]

    names = ("samples", "mask", *(("target_so_far",) if spelled else ()))
    return GraphInputs(names, ((0, 1),) * len(names), draw, LogMelFrontend(given))


def _graph_data_inputs(spec: GraphSpec) -> GraphInputs:
    """Return the inputs of nodes and edges of graphs."""
    described = bool(spec.edge_features)

    def draw(rows: int, part: float, generator: torch.Generator) -> tuple[Tensor, ...]:
        nodes = max(6, round(MAX_TEST_NODES * part))
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
    return GraphInputs(names, ((0,), (1,), (0,), (0,))[: len(names)], draw, front)


def _random_tokens(
    rows: int, part: float, longest: int, vocab_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    length = max(2, round(min(longest, MAX_TEST_LENGTH) * part))
    tokens, mask = torch.randint(1, vocab_size, (rows, length), generator=generator), _padding_mask(rows, length)
    return tokens.masked_fill(~mask, 0), mask


def _padding_mask(rows: int, length: int, padding: int = 1) -> Tensor:
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
