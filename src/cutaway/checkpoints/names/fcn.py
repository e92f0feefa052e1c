"""Names of FCN: the same as torchvision's."""

TORCHVISION = {"fcn-resnet50": "fcn_resnet50"}
RENAMES = ()
