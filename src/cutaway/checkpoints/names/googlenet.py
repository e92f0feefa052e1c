"""GoogLeNet's names: torchvision's own. Not googlenet-2014, which is another network."""

TORCHVISION = {"googlenet": "googlenet"}
RENAMES = ()
