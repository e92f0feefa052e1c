"""DeepLabV3's names: torchvision's own."""

TORCHVISION = {"deeplabv3-resnet50": "deeplabv3_resnet50"}
RENAMES = ()
