"""The requirements of views: functions that return whether a view applies to a model and its examples.

The registry names them, so that the files of views need not be imported to find out which views apply.
"""

from __future__ import annotations

from ..core.spec import Classes, Image, Noise, Transcript, Value
from ..data.images.tokens import TokenPreprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.tables.column_types import Numeric
from ..data.tables.transforms import TablePreprocessing
from ..data.text.puzzles import PuzzlePreprocessing
from ..models.base import SupportsDecoding, SupportsEncoding, SupportsImageGeneration, SupportsKVCache, as_base_model
from ..models.spiking import LeakyIntegrateAndFire
from ..nn.low_precision import quantization_scheme
from ..tasks.classification import Classification
from ..training.run_folder import read_metrics
from .model_layers import (
    attention_modules,
    convolutions,
    find_dense_layers,
    find_embedding_table,
    find_image_attention,
    find_input_layer,
    find_message_layers,
    find_normalizations,
    find_recurrent_layers,
    find_relative_biases,
    find_rotary_attention,
    flat_convolutions,
    flat_pools,
    has_enough_examples,
    head_input_function,
    patch_blocks,
)
from .run.documents import saved_moments
from .subject import Subject, get_target

# --- runs -------------------------------------------------------------------------------------------------------------


def has_finished_epochs(subject: Subject) -> bool:
    """Return whether the subject is a run with at least one finished epoch."""
    return subject.run is not None and bool(read_metrics(subject.run.folder / "metrics.csv"))


def has_evaluation(subject: Subject) -> bool:
    """Return whether the subject is a run that was evaluated."""
    return subject.run is not None and (subject.run.folder / "evaluation.json").is_file()


def has_saved_moments(subject: Subject) -> bool:
    """Return whether the subject is a run with weights of two or more moments."""
    return subject.run is not None and len(saved_moments(subject.run)) > 1


def is_quantized_run(subject: Subject) -> bool:
    """Return whether the subject is a run that `cutaway quantize` wrote."""
    return subject.run is not None and quantization_scheme(subject.model) is not None


# --- examples ---------------------------------------------------------------------------------------------------------


def has_inputs(subject: Subject) -> bool:
    """Return whether the examples have values."""
    return subject.inputs[0].numel() > 0


def has_image_batch(subject: Subject) -> bool:
    """Return whether the examples are images (N, C, H, W)."""
    return subject.inputs[0].ndim == 4


def has_numeric_column(subject: Subject) -> bool:
    """Return whether a row of the table has a numeric column; without preprocessing all inputs are numeric."""
    return _num_numeric_columns(subject) >= 1


def has_two_numeric_columns(subject: Subject) -> bool:
    """Return whether a row of the table has two or more numeric columns."""
    return _num_numeric_columns(subject) >= 2


def _num_numeric_columns(subject: Subject) -> int:
    if subject.inputs[0].ndim != 2:
        return 0
    given = subject.preprocessing
    if isinstance(given, TablePreprocessing):
        return sum(isinstance(e, Numeric) and e.kind == "number" for e in given.encoders)
    return subject.inputs[0].shape[1]


def predicts_value(subject: Subject) -> bool:
    """Return whether the model was trained to predict a number."""
    return isinstance(get_target(subject), Value)


def has_gradients(subject: Subject) -> bool:
    """Return whether the model has trainable parameters and a differentiable loss."""
    if getattr(subject.task, "loss_name", "") == "perceptron" and subject.target is None:
        return False
    return any(p.requires_grad for p in subject.model.parameters())


# --- layers -----------------------------------------------------------------------------------------------------------


def has_dense_layers(subject: Subject) -> bool:
    """Return whether the model is a network of dense layers."""
    return bool(find_dense_layers(subject.model))


def has_convolutions(subject: Subject) -> bool:
    """Return whether the model has convolutions; vision transformers have one too."""
    return bool(convolutions(subject.model))


def has_windows(subject: Subject) -> bool:
    """Return whether the model has a convolution or a pooling layer over one axis or two."""
    return bool(flat_convolutions(subject.model) or flat_pools(subject.model))


def has_drawable_weights(subject: Subject) -> bool:
    """Return whether the model has a convolution, or a first dense layer over an image or a signal."""
    return bool(convolutions(subject.model)) or find_input_layer(subject) is not None


def has_feature_maps(subject: Subject) -> bool:
    """Return whether the model's layers have maps: it has convolutions, or it is a vision transformer."""
    return bool(convolutions(subject.model) or patch_blocks(subject))


def has_normalization(subject: Subject) -> bool:
    """Return whether the model has a normalization layer."""
    return bool(find_normalizations(subject.model))


def has_spikes(subject: Subject) -> bool:
    """Return whether the model has layers of neurons that spike."""
    return any(isinstance(module, LeakyIntegrateAndFire) for module in subject.model.modules())


def has_recurrence(subject: Subject) -> bool:
    """Return whether the model has a recurrence over the steps of an example.

    The recurrence of a graph network is over its layers and does not count.
    """
    return subject.kind != "graph" and bool(find_recurrent_layers(subject.model))


def passes_messages(subject: Subject) -> bool:
    """Return whether the model has message-passing layers."""
    return bool(find_message_layers(subject.model))


def attends_to_positions(subject: Subject) -> bool:
    """Return whether the model attends to tokens, patches, positions or frames; series need patches.

    The view `graph` shows attention over edges.
    """
    in_patches = as_base_model(subject.model).series_patches() is not None
    return (in_patches or subject.kind != "series") and bool(attention_modules(subject.model))


def encodes_positions(subject: Subject) -> bool:
    """Return whether the model encodes positions."""
    model = as_base_model(subject.model)
    if model.position_tables(1) or model.position_slopes() is not None:
        return True
    return bool(find_relative_biases(subject.model) or find_rotary_attention(subject.model))


def has_embeddings(subject: Subject) -> bool:
    """Return whether the model has word embeddings, or enough examples to compare."""
    if find_embedding_table(subject.model) is not None:
        return True
    known = subject.run is not None or subject.whole is not None
    return head_input_function(subject) is not None and (known or has_enough_examples(subject))


# --- tasks ------------------------------------------------------------------------------------------------------------


def classifies_images(subject: Subject) -> bool:
    """Return whether it is an image classifier trained on data, with a loss that has probabilities."""
    return (
        isinstance(subject.preprocessing, ImagePreprocessing)
        and type(subject.preprocessing.spec.target) is Classes
        and isinstance(subject.task, Classification)
        and subject.task.loss_name in ("cross_entropy", "map")
    )


def writes_captions(subject: Subject) -> bool:
    """Return whether the model writes captions of images with attention over image positions."""
    return isinstance(subject.model, SupportsDecoding) and bool(find_image_attention(subject.model))


def solves_problems(subject: Subject) -> bool:
    """Return whether the model solves problems in writing and has a cache that thoughts can share."""
    return isinstance(subject.preprocessing, PuzzlePreprocessing) and isinstance(subject.model, SupportsKVCache)


def transcribes(subject: Subject) -> bool:
    """Return whether the network transcribes speech."""
    return Transcript in getattr(type(subject.model), "targets", ())


def denoises_images(subject: Subject) -> bool:
    """Return whether the model generates images by denoising."""
    return isinstance(subject.model, SupportsImageGeneration) and Noise in getattr(type(subject.model), "targets", ())


def samples_pixels(subject: Subject) -> bool:
    """Return whether the model samples images pixel by pixel, with the palette of its training images."""
    return isinstance(subject.preprocessing, TokenPreprocessing) and isinstance(subject.model, SupportsKVCache)


def encodes_images(subject: Subject) -> bool:
    """Return whether the model encodes images."""
    learns = getattr(type(subject.model), "targets", ())
    return isinstance(subject.model, SupportsEncoding) and Image in learns
