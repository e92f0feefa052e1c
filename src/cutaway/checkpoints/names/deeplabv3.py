"""Names of DeepLabV3: the same as torchvision's."""

TORCHVISION = {"deeplabv3-resnet50": "deeplabv3_resnet50"}
RENAMES = ()
