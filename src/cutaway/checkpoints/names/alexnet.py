"""Names of AlexNet: our layers are numbered as in the papers, torchvision's by index in two sequences.

alexnet-2012 is not included: torchvision's network has one tower and no normalization.
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
