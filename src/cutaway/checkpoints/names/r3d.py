"""Names of R3D: torchvision numbers a convolution, its normalization and its ReLU, which have names here."""

TORCHVISION = {"r3d-18": "r3d_18"}
RENAMES = (
    (r"^stem\.conv\.", "stem.0."),
    (r"^stem\.bn\.", "stem.1."),
    (r"\.downsample\.conv\.", ".downsample.0."),
    (r"\.downsample\.bn\.", ".downsample.1."),
    (r"\.conv([12])\.", r".conv\1.0."),
    (r"\.bn([12])\.", r".conv\1.1."),
)
