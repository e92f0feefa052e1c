"""Names of FCOS: torchvision has the ResNet and the pyramid in a backbone, and both outputs in one head."""

TORCHVISION = {"fcos-resnet50": "detection.fcos_resnet50_fpn"}
RENAMES = (
    (r"^body\.", "backbone.body."),
    (r"^pyramid\.lateral\.(\d+)", r"backbone.fpn.inner_blocks.\1.0"),
    (r"^pyramid\.smooth\.(\d+)", r"backbone.fpn.layer_blocks.\1.0"),
    (r"^pyramid\.extra\.0", "backbone.fpn.extra_blocks.p6"),
    (r"^pyramid\.extra\.1", "backbone.fpn.extra_blocks.p7"),
    (r"^class_tower", "head.classification_head.conv"),
    (r"^head\.(weight|bias)", r"head.classification_head.cls_logits.\1"),
    (r"^box_tower", "head.regression_head.conv"),
    (r"^distances", "head.regression_head.bbox_reg"),
    (r"^centerness", "head.regression_head.bbox_ctrness"),
)
