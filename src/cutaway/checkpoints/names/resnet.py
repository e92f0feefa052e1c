"""Names of ResNet: the same as torchvision's. resnet50-v1 and similar presets have other strides and are not
included.
"""

TORCHVISION = {name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")}
RENAMES = ()
