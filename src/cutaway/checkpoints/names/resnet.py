"""Names of ResNet: the same as torchvision's.

resnet50-v1 and similar presets are not included, because they have other strides.
"""

TORCHVISION = {name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")}
RENAMES = ()
