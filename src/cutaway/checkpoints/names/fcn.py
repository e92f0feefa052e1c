"""FCN's names: torchvision's own."""

TORCHVISION = {"fcn-resnet50": "fcn_resnet50"}
RENAMES = ()
