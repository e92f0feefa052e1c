"""Inception-v3's names: torchvision's own."""

TORCHVISION = {"inception-v3": "inception_v3"}
RENAMES = ()
