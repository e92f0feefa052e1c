"""torchvision's wheel may be built for CUDA beside a PyTorch for the CPU: it is made importable before any test."""

from __future__ import annotations

from cutaway.verify.libraries import make_torchvision_importable

make_torchvision_importable()
