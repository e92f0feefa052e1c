"""Names of DenseNet: torchvision has everything except the head within `features`, which is a method here."""

TORCHVISION = {name: name for name in ("densenet121", "densenet161", "densenet169", "densenet201")}
RENAMES = ((r"^(?!classifier\.)", "features."),)
