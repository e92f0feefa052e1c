"""Toy data for small networks: two-dimensional data with two or three classes, a curve, and the truth table of XOR."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]  # (n, 2), (n,)


def wave(count: int, noise: float, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Generate y = sin(2x) + x/3 with noise at x uniform from −3 to 3; returns x and y, (n,) each."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, count)
    return x, np.sin(2 * x) + x / 3 + noise * rng.standard_normal(count)


def xor() -> Points:
    """Return the truth table: (0, 0) → 0, (0, 1) → 1, (1, 0) → 1, (1, 1) → 0."""
    return np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 1, 0])


def noisy_xor(count: int, noise: float, seed: int) -> Points:
    """Generate points around the four rows of the truth table, in equal numbers up to one."""
    corners, labels = xor()
    row = np.arange(count) % len(labels)
    return _noisy(corners[row], noise, np.random.default_rng(seed)), labels[row]


def moons(count: int, noise: float, seed: int) -> Points:
    """Generate two interlocking half circles of radius 1: (cos t, sin t) and (1 − cos t, ½ − sin t), t in [0, π]."""
    rng, labels, t = _draw(count, seed, classes=2)
    t *= np.pi
    upper = np.stack([np.cos(t), np.sin(t)], 1)
    lower = np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1)
    return _noisy(np.where(labels[:, None] == 0, upper, lower), noise, rng), labels


def circles(count: int, noise: float, seed: int) -> Points:
    """Generate a circle of radius 1 (class 0) around one of radius ½ (class 1)."""
    rng, labels, t = _draw(count, seed, classes=2)
    t *= 2 * np.pi
    radius = np.where(labels == 0, 1.0, 0.5)
    return _noisy(np.stack([radius * np.cos(t), radius * np.sin(t)], 1), noise, rng), labels


def spirals(count: int, noise: float, seed: int) -> Points:
    """Generate three spiral arms around the origin: radius t, angle 2π·(0.75 t + class / 3), t in [0, 1]."""
    rng, labels, t = _draw(count, seed, classes=3)
    angle = 2 * np.pi * (0.75 * t + labels / 3)
    return _noisy(np.stack([t * np.cos(angle), t * np.sin(angle)], 1), noise, rng), labels


def _draw(
    count: int, seed: int, classes: int
) -> tuple[np.random.Generator, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return a generator, balanced classes, and a position in [0, 1) on the curve for each point."""
    rng = np.random.default_rng(seed)
    return rng, np.arange(count) % classes, rng.random(count)


def _noisy(points: npt.NDArray[np.float64], noise: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Add normal noise of standard deviation `noise` to each coordinate."""
    return points + noise * rng.standard_normal(points.shape)
