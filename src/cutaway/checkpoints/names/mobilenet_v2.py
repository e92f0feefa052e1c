"""Names of MobileNetV2: the same indices in the sequence of layers; in torchvision layers of a block are numbered."""

TORCHVISION = {"mobilenet-v2": "mobilenet_v2"}
RENAMES = (
    (r"^head\.", "classifier.1."),
    (r"^layers\.", "features."),
    (r"^features\.1\.depthwise\.", "features.1.conv.0."),  # the first block has no expansion layer
    (r"^features\.1\.project\.", "features.1.conv.1."),
    (r"^features\.1\.bn\.", "features.1.conv.2."),
    (r"\.expand\.", ".conv.0."),
    (r"\.depthwise\.", ".conv.1."),
    (r"\.project\.", ".conv.2."),
    (r"^(features\.(?!0\.|18\.)\d+)\.bn\.", r"\1.conv.3."),
    (r"\.conv\.(weight)$", r".0.\1"),
    (r"\.bn\.", ".1."),
)
