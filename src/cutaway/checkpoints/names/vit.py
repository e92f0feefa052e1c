"""Names of the Vision Transformers: other names of blocks and norms, with equal tensors.

Torchvision has layers for blocks, ln for norm, and a packed parameter for queries, keys and values where we have a
linear layer.
"""

TORCHVISION = {"vit-base/16": "vit_b_16", "vit-base/32": "vit_b_32", "vit-large/16": "vit_l_16"}
RENAMES = (
    (r"^patches\.", "conv_proj."),
    (r"^positions$", "encoder.pos_embedding"),
    (r"^norm\.", "encoder.ln."),
    (r"^head\.", "heads.head."),
    (r"^blocks\.(\d+)\.", r"encoder.layers.encoder_layer_\1."),
    (r"\.norm([12])\.", r".ln_\1."),
    (r"\.attention\.qkv\.", ".self_attention.in_proj_"),
    (r"\.attention\.out\.", ".self_attention.out_proj."),
    (r"\.mlp\.fc1\.", ".mlp.0."),
    (r"\.mlp\.fc2\.", ".mlp.3."),
)
