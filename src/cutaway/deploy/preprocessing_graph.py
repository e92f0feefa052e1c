"""What stands in an exported graph before the model: the run's preprocessing, from what a decoder of files gives on.

Each takes the raw inputs and gives those of the model. Where numbers decide which way a pixel is rounded they are
computed in float64, and as the run computes them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ..data.audio.transforms import FLOOR, AudioPreprocessing, hop_length, mel_filters, transform_size, window_length
from ..data.images.transforms import ImagePreprocessing
from ..data.tables.encoders import CYCLES, Category, Encoder, Numeric

ONE = 1 << 22  # Pillow's weights are whole numbers of this part of 1


class Fitted(nn.Module):
    """Pixels uint8 (N, h, w, C) of any one size, of videos (N, T, h, w, C), as the network takes them: (N, C, H, W).

    Resizing is Pillow's, bilinear and antialiased: one line of weights for each row and column, in whole numbers, and
    each of the two passes rounded to whole levels (Pillow's src/libImaging/Resample.c). Rows are drawn together last,
    as in Pillow up to 12 always; Pillow 13 begins with them where it holds that cheaper, which moves a pixel by one
    level of 255 here and there. Of an image that has the network's size already nothing is moved.
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
        """What the network takes, and what stands beside the images as it is: a caption so far, or of a video its
        mask."""
        if pixels.ndim == 4:
            return self._images(pixels), *rest
        n, frames, height, width, channels = pixels.shape
        x = self._images(pixels.reshape(n * frames, height, width, channels))
        x = x.view(n, frames, *x.shape[1:])  # (N, T, C, H, W)
        return x.masked_fill(~rest[0][:, :, None, None, None], 0), *rest

    def _images(self, pixels: Tensor) -> Tensor:
        levels = pixels.permute(0, 3, 1, 2).double()  # (N, C, h, w)
        down, across, inside = self._weights(levels.shape[2], levels.shape[3])
        levels = _rounded(levels @ across.t())  # (N, C, h, W)
        levels = _rounded(down @ levels)  # (N, C, H, W)
        levels = torch.where(inside, levels, self.background)
        return (levels.float() - self.mean) / self.std

    def _weights(self, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """The weights of rows (H, h) and of columns (W, w), and which pixels (H, W) show the image."""
        (rows, columns), rows_in, columns_in = self.size, torch.arange(height), torch.arange(width)
        h, w = (torch.ones_like(x, dtype=torch.float64).sum() for x in (rows_in, columns_in))  # sizes as numbers
        zero = torch.zeros_like(h)
        if self.fit == "pad":
            scale = torch.minimum(self.box[0] / h, self.box[1] / w)
            drawn_h, drawn_w = ((side * scale).round().clamp(min=1) for side in (h, w))
            top, left = ((whole - drawn) // 2 for whole, drawn in ((rows, drawn_h), (columns, drawn_w)))
            down, seen_rows = _resampling(rows_in, h, zero, h, rows, drawn_h, top)
            across, seen_columns = _resampling(columns_in, w, zero, w, columns, drawn_w, left)
            return down, across, seen_rows[:, None] & seen_columns
        above, aside = zero, zero
        if self.fit == "crop":
            above, aside = ((h - w * rows / columns) / 2).clamp(min=0), ((w - h * columns / rows) / 2).clamp(min=0)
            wide = w * rows > h * columns
            whole_h, whole_w = ~wide & (w == columns), wide & (h == rows)  # nothing is scaled: cut out whole pixels
            above, aside = torch.where(whole_h, above.floor(), above), torch.where(whole_w, aside.floor(), aside)
            end_h = torch.where(whole_h, above + rows, h - above)
            end_w = torch.where(whole_w, aside + columns, w - aside)
        else:
            end_h, end_w = h, w
        down, seen_rows = _resampling(rows_in, h, above, end_h, rows, zero + rows, zero)
        across, seen_columns = _resampling(columns_in, w, aside, end_w, columns, zero + columns, zero)
        return down, across, seen_rows[:, None] & seen_columns


def _resampling(
    inputs: Tensor, size: Tensor, begin: Tensor, end: Tensor, outputs: int, drawn: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """The weights (outputs, size) of one direction, in units of 1/ONE, and which outputs show the image: the part of it
    from `begin` to `end` is drawn on `drawn` of them, from `first` on. `inputs` are the numbers of its pixels."""
    begin, end = begin.float(), end.float()  # as Pillow holds a box
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


def _rounded(sums: Tensor) -> Tensor:
    """Whole levels of sums in units of 1/ONE."""
    return ((sums + ONE // 2) / ONE).floor().clamp(0, 255)


class Encoded(nn.Module):
    """The columns of a table, (N, F) float32, of its numbers float64 (N, n), NaN where a cell is missing, and the codes
    of its categories int64 (N, c): the place of the input that is set.

    Numbers to compute with are buffers: torch's exporter to ONNX rounds those of Python to float32 (torch 2.13), and of
    a date, 19 000 days since 1970, four digits would be left of its angle in a year.
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
        """`columns` are the numbers, where there are some, and the codes, where there are some."""
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
        """The inputs (N, features) of one column of numbers (N,), as `Numeric.encode` computes them."""
        gaps = values.isnan()
        fill, mean, scale, *periods = self.get_buffer(f"numbers{k}").unbind()
        values = torch.where(gaps, fill, values)
        scaled = self._on_curve(k, values) if encoder.curve else (values - mean) / scale
        columns = [scaled]
        for period in periods:
            angle = self.turn * values / period
            columns += [torch.where(gaps, 0.0, angle.sin()), torch.where(gaps, 0.0, angle.cos())]
        if encoder.missing:
            columns.append(gaps.double())
        return torch.stack(columns, 1)

    def _on_curve(self, k: int, values: Tensor) -> Tensor:
        """numpy.interp on the column's curve, clipped at its ends."""
        quantiles, places = self.get_buffer(f"curve{k}").unbind()
        if len(quantiles) == 1:
            return torch.full_like(values, 0.0) + places
        values = torch.minimum(torch.maximum(values, quantiles[0]), quantiles[-1])
        at = (values[:, None] >= quantiles).sum(1).clamp(1, len(quantiles) - 1) - 1
        slope = (places[1:] - places[:-1]) / (quantiles[1:] - quantiles[:-1])
        found: Tensor = places[at] + slope[at] * (values - quantiles[at])
        return found


class LogMel(nn.Module):
    """The log-mel frames (N, T, F) of samples (N, n) with a mask (N, n), as `data.audio.transforms` has them, and the
    mask of frames. The transform is a product with sines and cosines, in float64."""

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
        """Frames, their mask, and what stands beside: a transcript so far. There may be frames after the last real one,
        which the mask says are padding."""
        samples = torch.where(mask, samples, 0.0)
        padded = nn.functional.pad(samples, (0, self.length))
        starts = torch.arange(samples.shape[1] // self.hop + 1) * self.hop  # of frames that begin in the samples
        windows = padded[:, starts[:, None] + torch.arange(self.length)]  # (N, T, L)
        spectrum = windows.double() @ self.waves  # (N, T, K + 2)
        real, imaginary = spectrum.square().chunk(2, dim=2)
        power = real + imaginary  # (N, T, K/2 + 1)
        frames = (power @ self.filters).clamp(min=FLOOR).log().float()  # (N, T, F)
        lengths = mask.sum(1)
        counts = 1 + ((lengths - self.length).clamp(min=0) + self.hop - 1) // self.hop  # (N,)
        sounds = torch.arange(frames.shape[1]) < counts[:, None]  # (N, T)
        return ((frames - self.mean) / self.std).masked_fill(~sounds[:, :, None], 0), sounds, *rest


class Standardised(nn.Module):
    """Series float64 (N, T, F) and what is known in advance (N, H, K) less their means, over their deviations."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float64))

    def forward(self, series: Tensor, *known: Tensor) -> tuple[Tensor, ...]:
        """float32 of the same shapes; the variables known in advance are the last."""
        return _standardised(self.mean, self.std, series, *known)


class StandardisedByEach(nn.Module):
    """Windows of several series, float64 (N, T, F), less the means of their series (N, F), over its deviations (N, F),
    which stand last; what is known in advance, (N, H, K), stands between."""

    def forward(self, series: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """float32 of the same shapes; the variables known in advance are the last."""
        *known, mean, std = rest
        return _standardised(mean[:, None], std[:, None], series, *known)


def _standardised(mean: Tensor, std: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
    """Each part (N, T, n) less the last n of means (…, F), over the deviations, float32."""
    return tuple(((x - mean[..., -x.shape[2] :]) / std[..., -x.shape[2] :]).float() for x in parts)


class GraphLevel(nn.Module):
    """What a model of whole graphs takes, of x, edges, the graph of each node, and what is known of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, *beside: Tensor) -> tuple[Tensor | None, ...]:
        """The same, with no rows that are asked for."""
        return x, edge_index, None, batch, *beside


class EdgesDescribed(nn.Module):
    """What a model of nodes takes, of x, edges, the rows that are asked for, and what is known of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, rows: Tensor, edge_attr: Tensor) -> tuple[Tensor | None, ...]:
        """The same, with no graph for each node."""
        return x, edge_index, rows, None, edge_attr


class AsGiven(nn.Module):
    """Nothing: what the model takes is what is given, token ids for one."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The inputs."""
        return inputs


class Whole(nn.Module):
    """A model behind its front; with `mirrored` the mean of its answers for an image and its mirror image. Answers at
    each token (N, T, …) are 0 where the mask (N, T), the second input, says that there is none."""

    def __init__(self, model: nn.Module, front: nn.Module, mirrored: bool = False, by_token: bool = False) -> None:
        super().__init__()
        self.model, self.front, self.mirrored, self.by_token = model, front, mirrored, by_token

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the model answers."""
        x, *rest = self.front(*inputs)
        outputs: Tensor = self.model(x, *rest)
        if self.mirrored:
            other = self.model(x.flip(3), *rest)
            outputs = (outputs + (other.flip(3) if other.ndim == 4 else other)) / 2
        if self.by_token:
            outputs = outputs.masked_fill(~rest[0][:, :, None], 0)
        return outputs
