"""Attribution of an output to the parts of an input: one function, `attribute`, with a check of every result.

    result = attribute(model, x)                        # integrated gradients of the predicted class
    result.values                                       # (N, H, W), (N, F), (N, T), …: a number for each part
    result.passed, result.says                          # whether the checks passed, and why

`explained_output` has the output that is explained, and the input with respect to which it is explained. `methods`
lists the methods, which `gradient_methods` and `perturbation_methods` implement; `result` has the checks.
"""

from .explained_output import Target
from .methods import METHODS, attribute
from .result import Attribution, Completeness, Randomisation

__all__ = ["METHODS", "Attribution", "Completeness", "Randomisation", "Target", "attribute"]
