"""Names of VGG: the same indices in the sequence of convolutions; our fully connected layers are numbered from 6."""

TORCHVISION = {
    f"vgg{depth}{bn}": f"vgg{depth}{bn.replace('-', '_')}" for bn in ("", "-bn") for depth in (11, 13, 16, 19)
}
RENAMES = (
    (r"^convolutions\.", "features."),
    (r"^fc6\.", "classifier.0."),
    (r"^fc7\.", "classifier.3."),
    (r"^fc8\.", "classifier.6."),
)
