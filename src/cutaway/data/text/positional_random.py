"""Random numbers that depend only on a seed and a position, not on other draws.

An example has the same draws in every batch, alone, and after a run is resumed. The mixing function is that of
SplitMix64: G. L. Steele, D. Lea, C. H. Flood, Fast splittable pseudorandom number generators, 2014,
<https://doi.org/10.1145/2660193.2660195>.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the odd number next to 2⁶⁴ / golden ratio


def mix_bits(keys: Keys) -> Keys:
    """Mix all bits of each number by a bijection."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def uniform(seed: int, places: npt.NDArray[np.int64], draw: int) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each position, of any shape. `draw` distinguishes several draws at a position."""
    first = mix_bits(np.array([seed % 2**64, draw], np.uint64) * GAMMA + GAMMA)
    stream = mix_bits(first[:1] + GAMMA * (first[1:] | np.uint64(1)))
    keys = mix_bits(stream + GAMMA * (places.astype(np.uint64) + np.uint64(1)))
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
