"""Names of Inception-v3: the same as torchvision's."""

TORCHVISION = {"inception-v3": "inception_v3"}
RENAMES = ()
