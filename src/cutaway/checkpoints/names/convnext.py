"""Names of ConvNeXt: torchvision numbers downsampling, stages and the layers of a block.

Downsampling and stage are two entries of one sequence. Two of the numbers of a block are permutations.
"""

TORCHVISION = {f"convnext-{size}": f"convnext_{size}" for size in ("tiny", "small", "base")}
RENAMES = (
    (r"^norm\.", "classifier.0."),
    (r"^head\.", "classifier.2."),
    (r"^stages\.0\.downsample\.conv\.", "features.0.0."),
    (r"^stages\.0\.downsample\.norm\.", "features.0.1."),
    *((rf"^stages\.{i}\.downsample\.norm\.", f"features.{2 * i}.0.") for i in range(1, 4)),
    *((rf"^stages\.{i}\.downsample\.conv\.", f"features.{2 * i}.1.") for i in range(1, 4)),
    *((rf"^stages\.{i}\.blocks\.", f"features.{2 * i + 1}.") for i in range(4)),
    (r"\.depthwise\.", ".block.0."),
    (r"\.norm\.", ".block.2."),
    (r"\.expand\.", ".block.3."),
    (r"\.project\.", ".block.5."),
)
