"""Which parts of an input made the output what it is: one function, `attribute`, and a check beside every answer.

    result = attribute(model, x)                        # integrated gradients of the predicted class
    result.values                                       # (N, H, W), (N, F), (N, T), …: a number for each part
    result.passed, result.says                          # whether the map can be believed, and why

One file for each idea: `target` is which number of the output is explained, `entry` what it is a function of,
`gradients`, `shap`, `occlusion`, `gradcam` and `rollout` the methods, `checks` what is held against each map.
"""

from .methods import METHODS, attribute
from .result import Attribution, Completeness, Randomisation
from .target import Target

__all__ = ["METHODS", "Attribution", "Completeness", "Randomisation", "Target", "attribute"]
