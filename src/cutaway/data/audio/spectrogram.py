"""From audio to the logarithm of its power in mel bands, frame after frame.

With frames of L = 25 ms every H = 10 ms, Hann's window w (periodic), and M bands:

    X[t, k] = Σ_n w[n] s[tH + n] e^(−2πi kn / K) / Σ_n w[n]            the short-time Fourier transform
    y[t, m] = ln max( Σ_k W[m, k] |X[t, k]|², 10⁻¹⁰ )

W[m, ·] is a triangle over frequencies that rises from f_{m−1} to 1 at f_m and falls to f_{m+1}; the M + 2 points f are
equally spaced on the mel scale from 0 to half the rate, where

    mel(f) = 2595 log₁₀(1 + f / 700)

as in S. Young et al., The HTK book, section 5.4 (the formula is D. O'Shaughnessy's, Speech communication, 1987).

- Dividing by Σ w makes levels independent of the rate: a tone of amplitude 1 has the power 1/4 in its band.
- HTK's triangles have straight sides on the mel scale; here, as in librosa and torchaudio, on the scale of frequencies.
  They all are 1 high: Slaney's, librosa's default, have equal areas instead, and another mel scale.
- The first frame begins with the first sample and no sample is mirrored. As many zeros follow the last sample as
  complete its last frame, so that every sample stands in a frame.
- K, the length of the transform, is the power of two from L on at which the nearest of its frequencies stands in the
  upper half of every triangle; more bands than the window can tell apart share what they see.
"""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 0.025  # seconds that a frame sees
HOP = 0.010  # seconds from a frame to the next
FLOOR = 1e-10  # −100 dB: what is fainter counts as this


def log_mel(samples: Tensor, rate: int, bands: int) -> Tensor:
    """The log-mel spectrogram (T, bands) of samples (n,), n ≥ 1, `rate` of them in a second; in their precision.

    T = 1 + ⌈(n − L) / H⌉, at least 1.
    """
    window, filters = _window(rate, samples.dtype), _filters(rate, bands, samples.dtype)
    length, hop, size = len(window), hop_length(rate), 2 * (filters.shape[1] - 1)
    missing = length + hop * (frame_count(len(samples), rate) - 1) - len(samples)
    around = size - length  # torch puts the window into the middle of what is transformed
    padded = F.pad(samples, (around // 2, missing + around - around // 2))
    spectrum = torch.stft(padded, size, hop, length, window, center=False, return_complex=True)  # (K/2 + 1, T)
    power = spectrum.real.square() + spectrum.imag.square()
    return (filters @ power).clamp(min=FLOOR).log().T  # (T, bands)


def frame_count(samples: int, rate: int) -> int:
    """How many frames audio of so many samples has."""
    return 1 + max(0, -(-(samples - window_length(rate)) // hop_length(rate)))


def window_length(rate: int) -> int:
    """L in samples."""
    return max(1, round(WINDOW * rate))


def hop_length(rate: int) -> int:
    """H in samples."""
    return max(1, round(HOP * rate))


def mel(frequency: float) -> float:
    """The pitch of a frequency in hertz."""
    return 2595 * math.log10(1 + frequency / 700)


def band_edges(rate: int, bands: int) -> Tensor:
    """The points f_0 … f_{M+1} in hertz, float64: band m (from 0) rises at m, peaks at m + 1 and ends at m + 2."""
    mels = torch.linspace(0, mel(rate / 2), bands + 2, dtype=torch.float64)
    return 700 * (10 ** (mels / 2595) - 1)


def mel_filters(rate: int, bands: int, size: int) -> Tensor:
    """The triangles at the frequencies of a transform of `size` samples: (bands, size/2 + 1), float64."""
    edges = band_edges(rate, bands)[:, None]
    frequencies = torch.arange(size // 2 + 1, dtype=torch.float64) * rate / size
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


def transform_size(rate: int, bands: int) -> int:
    """K: frequencies no further apart than the narrowest side of a triangle, which is the first."""
    narrowest = float(band_edges(rate, bands)[1])
    return 1 << math.ceil(math.log2(max(window_length(rate), rate / narrowest)))


@functools.lru_cache(maxsize=8)
def _window(rate: int, dtype: torch.dtype) -> Tensor:
    window = torch.hann_window(window_length(rate), dtype=torch.float64)
    return (window / window.sum()).to(dtype)


@functools.lru_cache(maxsize=8)
def _filters(rate: int, bands: int, dtype: torch.dtype) -> Tensor:
    return mel_filters(rate, bands, transform_size(rate, bands)).to(dtype)
