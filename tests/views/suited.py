"""Which presets each view has something to show of: each is built once for all views, for it takes a while."""

from __future__ import annotations

import functools

from cutaway.views.registry import suitable_views
from cutaway.views.subject import open_model

from ..small import DIFFERENT, small

# One of each way in which attributions are drawn and checked: these are asked for all maps, the others for one alone,
# since the checks of a map run a model often.
ATTRIBUTED_WHOLE = {"lenet5", "mlp", "gpt2", "t5-small", "cnn1d", "gcn", "cnn-lstm", "perceptron", "word2vec-cbow"}


@functools.cache
def _views() -> dict[str, list[str]]:
    """Preset → the views that suit it."""
    return {name: suitable_views(open_model(model, *inputs)) for name in DIFFERENT for model, inputs in (small(name),)}


def suited(view: str) -> list[str]:
    """The names of the presets that a view suits."""
    return [name for name, views in _views().items() if view in views]
