"""MobileNetV2's names: the same places in the sequence of layers; within a block the layers are numbered."""

TORCHVISION = {"mobilenet-v2": "mobilenet_v2"}
RENAMES = (
    (r"^head\.", "classifier.1."),
    (r"^layers\.", "features."),
    (r"^features\.1\.depthwise\.", "features.1.conv.0."),  # the first block does not widen, and has a layer less
    (r"^features\.1\.project\.", "features.1.conv.1."),
    (r"^features\.1\.bn\.", "features.1.conv.2."),
    (r"\.expand\.", ".conv.0."),
    (r"\.depthwise\.", ".conv.1."),
    (r"\.project\.", ".conv.2."),
    (r"^(features\.(?!0\.|18\.)\d+)\.bn\.", r"\1.conv.3."),
    (r"\.conv\.(weight)$", r".0.\1"),
    (r"\.bn\.", ".1."),
)
