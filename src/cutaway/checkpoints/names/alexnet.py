"""AlexNet's names: ours number the layers as the papers do, torchvision's are places in two sequences.

alexnet-2012 is not there: torchvision has one tower, without normalization.
"""

TORCHVISION = {"alexnet": "alexnet"}
RENAMES = (
    (r"^conv1\.", "features.0."),
    (r"^conv2\.", "features.3."),
    (r"^conv3\.", "features.6."),
    (r"^conv4\.", "features.8."),
    (r"^conv5\.", "features.10."),
    (r"^fc6\.", "classifier.1."),
    (r"^fc7\.", "classifier.4."),
    (r"^fc8\.", "classifier.6."),
)
