"""The ResNets' names: torchvision's own. Not resnet50-v1 and its like, whose weights mean something else there."""

TORCHVISION = {name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")}
RENAMES = ()
