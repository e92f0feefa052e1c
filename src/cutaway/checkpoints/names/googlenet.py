"""Names of GoogLeNet: the same as torchvision's. googlenet-2014 is another network and is not included."""

TORCHVISION = {"googlenet": "googlenet"}
RENAMES = ()
