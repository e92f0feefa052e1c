"""The views of a model's internals: their documentation, what each needs, and the function that draws it.

A view is a function from a `Subject` to a plain JSON description (`draw/description.py`), and an entry here. The entry
names requirements for a model and its examples, so that the file of a view is imported only to draw it. A view computes
its numbers with hooks that leave the model unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from ..core.errors import IncompatibleSettingError, UnknownName
from ..core.plugins import add_plugins, reject_duplicates

if TYPE_CHECKING:  # the registry is read without importing torch
    from ..draw.description import View
    from .subject import Subject


@dataclass(frozen=True, kw_only=True)
class RegisteredView:
    """A view in the registry."""

    # the file below this package and its function, e.g. attention.draw_attention; of another package: module:function
    draw: str = field(kw_only=False)
    says: str  # one line: the content of the view, for `cutaway inspect --help`
    read: str  # how to read it: a few sentences
    misleads: str  # its limitations: a few sentences
    options: Mapping[str, str] = field(default_factory=dict)  # for example {"head": "which head, counted from 0"}
    kinds: tuple[str, ...] = ()  # the kinds of input that it applies to; empty for all
    needs: tuple[str, ...] = ()  # names of functions in requirements.py, checked in this order: all must return True
    model_runs: int = 0  # approximate number of passes through the model, if there are many


# In reading order.
VIEWS: dict[str, RegisteredView] = {
    "network": RegisteredView(
        "network.draw_network",
        says=(
            "layers with shapes, parameters, MACs (multiply-adds), memory and receptive field, down to their arithmetic"
        ),
        read=(
            "Each row is a block; click it to open the blocks within, down to the products that its counts are "
            "computed from. The bars of a column share one scale. Consecutive identical blocks are one row. Long "
            "bars show where the cost is: parameters are stored and learned, MACs (multiply-adds) are the compute of "
            "an example, memory is what training stores for it."
        ),
        misleads=(
            "MACs count convolutions and matrix products only; normalizations, activations and softmax take time "
            "too, and small layers are slower than their counts suggest. Memory is the output of every layer, stored "
            "once, in the precision of the weights: frameworks store more, or less with recomputation. The receptive "
            "field is an upper bound: the center has far more influence (Luo et al. 2016, "
            "https://arxiv.org/abs/1701.04128)."
        ),
    ),
    "curves": RegisteredView(
        "run.training.draw_curves",
        needs=("has_finished_epochs",),
        says="learning curves: loss, metrics and learning rate by epoch",
        read=(
            "Each curve is one split of the data: training as the mean over an epoch while the weights change, "
            "validation at its end. Both should fall together and flatten out. If the training loss keeps falling "
            "and the validation loss rises, the model overfits. The dashed line is the epoch whose weights were "
            "kept."
        ),
        misleads=(
            "Training loss is measured on older weights than validation, with dropout and augmentation on: it can be "
            "higher than validation without anything being wrong. Small validation splits give noisy curves. A curve "
            "that is flat on this scale may still fall on a logarithmic one."
        ),
    ),
    "results": RegisteredView(
        "run.summary.draw_results",
        needs=("has_evaluation",),
        says="test results: confusion matrix or residuals, and the examples with the largest loss",
        read=(
            "Rows of the matrix are actual classes, columns are predictions: correct predictions are on the "
            "diagonal, and a dark cell off the diagonal is a frequent confusion. For regression, each dot is an "
            "example, and a dot on the line was predicted exactly. Below are the examples with the largest loss: "
            "confident and wrong. Check them first, since many are labeling errors."
        ),
        misleads=(
            "Shades are fractions of a row: a class with three examples looks as important as one with three "
            "thousand, so read the counts. The intervals hold for data from the same distribution only. The worst "
            "examples are the tail of the distribution, not typical."
        ),
    ),
    "boundary": RegisteredView(
        "learned_function.draw_boundary",
        kinds=("table",),
        needs=("has_two_numeric_columns", "has_dense_layers"),
        says="decision boundary over two features of a table, with a map of every neuron over the same plane",
        read=(
            "Each small map is one neuron over the same two features as the large map: purple where its value is "
            "above zero, green where it is below, stronger with distance from zero. The thick line in it marks where "
            "its weighted sum is zero; thin lines are level curves, on which its value is the same. Point at a small "
            "map, or click it, to see it enlarged, with the values of its level curves. In the first layer they are "
            "parallel lines, perpendicular to the neuron's weights, and dense where its value changes quickly. Lines "
            "between maps are weights, in the same colors; wider lines are larger weights. The large map is the "
            "prediction; filled dots are training examples, rings are test examples."
        ),
        misleads=(
            "For a model of more than two features this is one slice: the other features are fixed at the mean or "
            "the most frequent value of the training data, so an example whose own values differ may lie on the "
            "other side of the boundary. The colors of small maps are scaled for each neuron separately, so a weak "
            "neuron looks as strong as an active one. Level curves are interpolated on a grid, and their steps differ "
            "between neurons. Far from all dots the map shows an extrapolation, not something learned (M. Hein, M. "
            "Andriushchenko, J. Bitterwolf, Why ReLU networks yield high-confidence predictions far away from the "
            "training data, 2019)."
        ),
        options={
            "features": "the two columns for the axes, e.g. age,income",
        },
    ),
    "function": RegisteredView(
        "learned_function.draw_function",
        kinds=("table",),
        needs=("predicts_value", "has_numeric_column"),
        says="the learned function of one numeric feature of a table, and the neurons that sum to it",
        read=(
            "The curve is the prediction over the values of one feature; dots are examples. Below it, for a network "
            "with one hidden layer, each line is one neuron times its output weight: with the bias they sum to the "
            "curve. A wider layer has more such terms."
        ),
        misleads=(
            "For a table with more columns this is one slice: the other features are fixed at the mean or the most "
            "frequent value of the training data, so an example with other values may lie off the curve. Outside the "
            "range of the examples the curve is an extrapolation, not something learned. Single neurons need not "
            "have a meaning: other neurons could sum to the same curve."
        ),
        options={
            "feature": "column for the axis, e.g. age",
        },
    ),
    "backprop": RegisteredView(
        "backprop.draw_backprop",
        needs=("has_dense_layers",),
        says="back-propagation by numbers: z, a, δ and the gradients of every neuron, for one example",
        read=(
            "From left to right: each neuron sums its inputs times their weights to z, and outputs a = g(z). From "
            "right to left: δ = ∂L/∂z is the derivative of the loss with respect to z; it is computed from the δ of "
            "the following neurons, times the same weights, times the slope g′(z). A weight's gradient is the δ of "
            "its output neuron times the a of its input neuron. Click a neuron to see its sums."
        ),
        misleads=(
            "This is one example: a training step uses the mean over a batch, whose examples pull in different "
            "directions. A large gradient is not a large step: the optimizer scales it. Of wide layers, the eight "
            "neurons with the largest δ are shown, and the sums contain the rest as one term. Numbers are rounded to "
            "four digits. Dropout is off, and batch normalization uses its running statistics, as in prediction and "
            "unlike in training."
        ),
        options={
            "example": "index of the example, from 0",
        },
    ),
    "filters": RegisteredView(
        "convolution.draw_filters",
        needs=("has_drawable_weights",),
        says="filters of convolutions, patch embeddings and first dense layers, as images of their weights",
        read=(
            "Each tile is a filter: purple weights are positive, green weights negative, gray weights near zero. A "
            "filter responds most to an input that looks like its tile; a filter over several video frames is a "
            "strip of tiles, the first frame on the left. Filters over red, green and blue are drawn in these colors "
            "around gray. Choose whether the color range is that of each tile, of the layer, or of all layers. With "
            "`kernel=sobel`, or for a photo without a model, the tiles are the photo and the outputs of a known "
            "kernel: the derivative from left to right is white or black at vertical edges, the derivative downwards "
            "at horizontal ones, and their gradient magnitude is white at edges of any direction."
        ),
        misleads=(
            "Only the first layer reads the image itself: a later filter reads feature maps of other filters, and "
            "its shape means little without them. For later layers the slice with the largest norm is shown, not the "
            "whole filter. With its own color range, a filter with tiny weights looks as strong as the rest; compare "
            "its norm."
        ),
        options={
            "layer": "name of the layer",
            "filter": "index of one filter, from 0, to show all its slices",
            "range": "scope of the color range: unit, layer or global",
            "kernel": (
                "kernel that filters a photo instead: sobel, prewitt, scharr, gaussian, box, laplacian, sharpen, "
                "identity, or its rows as numbers, e.g. '0,1,0;1,-4,1;0,1,0'"
            ),
            "example": "index of the example that kernel= filters, from 0",
        },
    ),
    "features": RegisteredView(
        "feature_maps.draw_features",
        needs=("has_feature_maps",),
        says="feature maps: the output of each channel of a layer for one example",
        read=(
            "Red, green and blue of a color image come first, each as a gray tile: brighter is more of that color. "
            "Then a layer is shown, after the input image; every other tile is one channel of the layer: purple where "
            "it is above zero, green below, gray at zero. Channels are sorted by their mean absolute value; the number "
            "is the index of the channel. Deeper layers have fewer positions and more abstract features. For a vision "
            "transformer, the tiles are the principal components of its tokens, arranged like the patches."
        ),
        misleads=(
            "The maps are of one example: a channel that is inactive here may be active for the next. The function "
            "of a channel cannot be read off one image. Each map has its own color range, so weak maps look as "
            "strong as others; choose one range for all to compare them. Layers are shown as their module outputs "
            "them, often before the activation. Tokens late in a transformer need not describe their own patch (T. "
            "Darcet, M. Oquab, J. Mairal, P. Bojanowski, Vision transformers need registers, 2023)."
        ),
        options={
            "layer": "name of the layer",
            "example": "index of the example, from 0",
            "frame": "frame of a video, from 0; default the middle one",
        },
    ),
    "field": RegisteredView(
        "feature_maps.draw_field",
        kinds=("image",),
        needs=("has_image_batch", "has_convolutions"),
        model_runs=8,
        says="receptive field of each layer on the image: theoretical, and effective by the gradient",
        read=(
            "The orange frame is the theoretical receptive field of the middle of the layer's map: no pixel outside "
            "it can change the value. The color is the effective receptive field: how much each pixel changes the "
            "value, by the gradient, averaged over examples. With depth, the theoretical field grows at every layer, "
            "and the effective field more slowly: with the square root of the depth."
        ),
        misleads=(
            "The frame shows which pixels can matter, but most have little effect: the gradient is strongest in the "
            "middle and decays towards the edges roughly like a Gaussian (W. Luo, Y. Li, R. Urtasun, R. Zemel, "
            "Understanding the effective receptive field in deep convolutional neural networks, 2016). Gradients "
            "describe small changes to these examples; other examples activate other units. If the field is larger "
            "than the image, part of the frame lies outside it."
        ),
        options={
            "layer": "name of a single layer",
            "example": "index of the example whose image is shown, from 0",
        },
    ),
    "arithmetic": RegisteredView(
        "convolution.draw_arithmetic",
        needs=("has_windows",),
        says="arithmetic of a convolution or pooling layer: the window slides over its input and gives each output",
        read=(
            "On the left is part of one input channel of the layer, on the right its output. Point at an output "
            "cell, or move to it with the arrow keys: the window on the left marks the inputs that it is computed "
            "from. Between them are the weights, and below the weights the products, weight times input. The sum of "
            "the products, of the other channels and of the bias is the output. Hatched cells are padding, which "
            "counts as zero. A pooling layer has no weights: its output is the maximum or the mean of the numbers in "
            "the window, which are written below, and a maximum ignores padding."
        ),
        misleads=(
            "Only a few cells of one output channel are shown. Of many input channels, those with the largest weight "
            "norm are shown; the others are one term of the sum. Numbers are rounded to four digits, so a sum by "
            "hand may differ in the last digit. The operation is a cross-correlation: the kernel is not flipped, "
            "unlike in the convolution of signal processing. The layer may compute the same result with another "
            "algorithm, such as Winograd or FFT."
        ),
        options={
            "layer": "name of the layer",
            "example": "index of the example, from 0",
            "channel": "index of the output channel, from 0",
        },
    ),
    "normalization": RegisteredView(
        "normalization.draw_normalization",
        needs=("has_normalization",),
        says=(
            "normalization: the values that share statistics, and their mean and standard deviation before and after"
        ),
        read=(
            "The block is the input of the layer: a tile for each example, a row for each channel, a column for each "
            "position. Dark values share their mean and standard deviation with one another; the other sets are "
            "striped. Below are the mean and the standard deviation of every set over these examples, before and "
            "after the layer, and the distribution of all values. After the layer a set has mean β and standard "
            "deviation γ, which are learned, or 0 and 1 if they are not."
        ),
        misleads=(
            "Batch normalization is shown in evaluation mode, where it uses the running means of training, not those "
            "of these examples: the means after it need not be 0, and the examples are independent (S. Ioffe, C. "
            "Szegedy, 2015). In training all examples of a batch share them. The means and standard deviations shown "
            "are those of the few examples displayed. It is disputed that normalization helps by reducing the shift "
            "of a layer's input distribution (S. Santurkar et al., How does batch normalization help optimization?, "
            "2018), and the drawings do not show it."
        ),
        options={
            "layer": "name of the normalization layer",
        },
    ),
    "attention": RegisteredView(
        "attention.draw_attention",
        kinds=("image", "video", "series", "audio", "text", "seq2seq"),
        needs=("attends_to_positions",),
        says="attention weights per layer and head, over tokens or patches, down to the arithmetic of one query",
        read=(
            "A row of a map is a query, a column a key; the shade is the attention weight, and each row sums to 1. "
            "Point at a token to see where it attends, or choose a head and read its matrix: a diagonal is a head "
            "that attends to the token itself or its neighbor, a column is a key that all queries attend to. Below, "
            "one query is followed from its vector to the output. Entropy measures how broad a head attends: 0 bits "
            "is one key, and each additional bit doubles their number."
        ),
        misleads=(
            "An attention weight is not an importance: values can be small, information takes other paths, and very "
            "different weights can give the same output (Jain and Wallace 2019, https://arxiv.org/abs/1902.10186; "
            "for a reply see Wiegreffe and Pinter 2019, https://arxiv.org/abs/1908.04626). After the first layer a "
            "position holds a mixture of many tokens (Brunner et al. 2020, https://arxiv.org/abs/1908.04211). Many "
            "heads attend to the first token or a separator when they have nothing to add (Clark et al. 2019, "
            "https://arxiv.org/abs/1906.04341)."
        ),
        options={
            "layer": "attention module that is selected first: layer=blocks.3.attention",
            "head": "head that is selected first, from 0",
            "query": "position whose arithmetic is shown, from 0; default the last real token",
            "example": "index of the example, from 0",
            "variable": "variable of a series that is split into patches, from 0",
            "frame": "frame of a video, if attention is over its patches, from 0; default the middle one",
            "patch": "patch, if attention is over the frames of a video, from 0; default the middle one",
        },
    ),
    "caption": RegisteredView(
        "alignment.draw_caption",
        kinds=("image",),
        needs=("writes_captions",),
        says="cross-attention of a captioning model: the image regions that it attends to for each word",
        read=(
            "Each picture shows the image at one word; the shade is the attention weight of each region when the "
            "model wrote that word. The weights of all heads are averaged, and those of a picture sum to 1, so a "
            'faint picture means that the model attends to everything. Words such as "of" and "and" follow from the '
            "words before them and need no attention to the image."
        ),
        misleads=(
            "Attention shows which regions the model reads from, not the causes of the word: with wide convolutions "
            "and position encodings, a region also holds information from its surroundings, and in later layers from "
            "other regions. The region with the largest weight is not a detection. A gate that shuts out the image "
            "is not visible here."
        ),
        options={
            "layer": "cross-attention module that is selected first: layer=decoder.1.cross_attention",
            "example": "index of the example, from 0",
        },
    ),
    "thoughts": RegisteredView(
        "problem_solving.draw_thoughts",
        needs=("solves_problems",),
        model_runs=8,
        says=(
            "reasoning in text: the search tree or chains of thoughts, token probabilities and attention of each step"
        ),
        read=(
            "A column holds the steps of one depth: those of the answer first, then sorted by value. A line connects "
            "each step to its parent. The bar at the bottom of a step is the value that the model assigned to it; "
            "steps below the cut were pruned. The signs show whether a step is correct; this is computed here and "
            "not given to the model. Click a step to see the probability of each token, the alternatives, and the "
            "attention of each head before the token. A token of low probability is where the search branched. log p "
            "is the sum over the tokens of a step; the table counts the samples that gave each."
        ),
        misleads=(
            "A value is the model's own estimate, a single token, and can be confident in a wrong step: compare it "
            "with the signs. The written steps need not be how the network computed its answer: it can know the "
            "answer before it writes the steps, or continue correctly after a wrong one (Turpin et al. 2023, "
            "https://arxiv.org/abs/2305.04388; Lanham et al. 2023, https://arxiv.org/abs/2307.13702). Attention is "
            "not importance. Probabilities are those at temperature 1, while samples are drawn at another "
            "temperature; another seed gives another tree. One tree does not show how often a method succeeds: use "
            "`cutaway evaluate`."
        ),
        options={
            "example": "index of the problem, from 0",
            "method": "search method, as in `cutaway generate`; default tree if the run supports it, else greedy",
            "breadth": "thoughts kept at each depth of a tree; default 3",
            "proposals": "thoughts sampled after each thought; default 8",
            "depth": "steps of a tree; default 3",
            "threshold": "depth-first search: thoughts of lower value are not expanded",
            "budget": "depth-first search: maximum number of expanded thoughts; default 30",
            "samples": "number of sampled chains; default 8",
            "temperature": "sampling temperature; default 0.7",
            "seed": "sampling seed; default 0",
            "thought": "step that is selected first, from 1",
            "layer": "for deep models: attention module whose heads are shown separately",
        },
    ),
    "positions": RegisteredView(
        "positions.draw_positions",
        needs=("encodes_positions",),
        says="position encoding: sinusoids, learned tables, rotary or relative position encodings, linear biases",
        read=(
            "A position table has one row for each position; the matrix of cosines shows how similar the rows are: a "
            "bright diagonal that fades evenly means that nearby positions have similar encodings. For images each "
            "small map is the similarity of one patch to all others: if learned well, it is brightest along the "
            "patch's own row and column. Rotary encodings and relative or linear biases have no table: the curves show "
            "how a score changes with distance. A linear bias (ALiBi) lowers the score by slope · distance, so each "
            "token of distance multiplies the weight by the same factor: heads with a large slope attend to nearby "
            "tokens only."
        ),
        misleads=(
            "The cosine of two positions is not an attention score: queries and keys are products of these rows with "
            "learned matrices, which can remove or sharpen the pattern shown here. Rows of a learned table that "
            "occurred rarely in training, at the end of a long context, stay close to their random initialization. "
            "The decay of rotary encodings with distance holds for vectors with equal pairs (Su et al. 2021, "
            "https://arxiv.org/abs/2104.09864, section 3.4.3); real queries and keys need not follow it (Barbero et "
            "al. 2024, https://arxiv.org/abs/2410.06205). A causal model can learn order without any position "
            "encoding (Haviv et al. 2022, https://arxiv.org/abs/2203.16634)."
        ),
    ),
    "embeddings": RegisteredView(
        "embeddings.draw_embeddings",
        needs=("has_embeddings",),
        says="embeddings of words and examples: PCA and t-SNE, nearest neighbors, one word through the layers",
        read=(
            "Each mark is a high-dimensional vector, projected to a plane: marks that are close are similar to the "
            "model. Point at a mark to see lines to its nearest neighbors in the full space, which need not be its "
            "neighbors in the plane. PCA keeps the directions of largest variance, and its axes show how much; t-SNE "
            "and UMAP (on request) keep neighborhoods. The last drawings follow one word through the blocks: it "
            "starts as one vector and separates by context."
        ),
        misleads=(
            "In t-SNE, cluster sizes and distances between clusters mean nothing, and clusters can appear in noise "
            "(Wattenberg, Viégas and Johnson 2016, https://doi.org/10.23915/distill.00002). The same holds for UMAP: "
            "its large-scale layout is that of its initialization, here PCA (Kobak and Linderman 2021, "
            "https://doi.org/10.1038/s41587-020-00809-z). PCA shows only the fraction of the variance that its axes "
            "name: marks that are close may be far apart in other directions. The dot product favors long vectors, "
            "so frequent words are neighbors of everything. Transformer embeddings are anisotropic, so any two "
            "cosines look similar (Ethayarajh 2019, https://arxiv.org/abs/1909.00512): compare cosines with each "
            "other, not with 0."
        ),
        options={
            "word": "word to follow through the layers: word=spring",
            "plane": "an additional projection by UMAP, about half a minute, needs the extra cutaway[umap]: plane=umap",
        },
    ),
    "gates": RegisteredView(
        "gates.draw_gates",
        needs=("has_recurrence",),
        says="gates, cell and hidden state of a recurrent network at each step, and how far back it remembers",
        read=(
            "A gate is a number between 0 (closed) and 1 (open) for each unit and step. An LSTM's forget gate near 1 "
            "keeps the cell state, its input gate lets the candidate in, its output gate exposes the cell; a GRU's "
            "update gate near 1 keeps the state, its reset gate near 0 makes the candidate ignore it. In the maps a "
            "row is a unit and a column a step: a row of constant color is a unit that stores something. The last "
            "curves show how strongly the state depends on the state a given number of steps earlier: a curve that "
            "stays near 1 remembers, one that falls forgets (vanishing gradients), one that rises has exploding "
            "gradients."
        ),
        misleads=(
            "The mean of a gate over its units hides that some are always open and others always closed: see the "
            "maps. An open forget gate shows that information is kept, not that the output depends on it; ablate "
            "single units to test that (cutaway.inspect.ablate). The memory curves are derivatives, valid for small "
            "changes of one example: a state that has settled in one of two fixed points can remember forever with a "
            "derivative near 0. The plain RNN in the same plot has initial weights: training may make it remember "
            "longer or shorter. Inputs are fixed: if a decoder's input depends on its own state, that path is not "
            "included."
        ),
        options={
            "layer": "name of the layer, e.g. rnn.l0 or encoder.l1_reverse",
            "unit": "unit that is selected first, from 0",
            "example": "index of the example, from 0",
        },
    ),
    "spikes": RegisteredView(
        "spikes.draw_spikes",
        needs=("has_spikes",),
        says="spikes of a spiking network by neuron and time step, and the membrane potential of single neurons",
        read=(
            "In the raster a row is a neuron, a column a time step, and a dark cell a spike. A constant input drives a "
            "neuron to fire at regular intervals: the stronger the input, the earlier and the more often. A neuron "
            "whose potential settles below the threshold is silent. In the curve of a neuron the potential rises "
            "toward the threshold, and falls by the threshold in the step after a spike."
        ),
        misleads=(
            "The raster shows one example; the table counts over all of them. Spikes show that a neuron is active, not "
            "that the output depends on it: ablate it to test that (cutaway.inspect.ablate). The steps are not "
            "milliseconds, and the potential has no unit."
        ),
        options={
            "layer": "name of the layer, e.g. hidden.0.neurons",
            "example": "index of the example, from 0",
        },
    ),
    "alignment": RegisteredView(
        "alignment.draw_alignment",
        needs=("transcribes",),
        says="CTC alignment: the character that a speech network emits at each frame, above the spectrogram",
        read=(
            "Columns are output frames, in seconds. The upper map has one row for each character that is likely at "
            "any frame, the blank first; the probabilities of a frame sum to 1. To read the best path, take the "
            "darkest cell of each column from left to right, merge repeats and drop blanks. The map below is the "
            "network's input: the mel bands of the same times. If the reference text is known, the next map shows "
            "the frames of each of its characters, given that the recording contains this text."
        ),
        misleads=(
            "A peak does not mark where a character begins or ends: the loss needs only one frame for each "
            "character, and bidirectional networks often place it late, with blanks between. Durations of sounds "
            "cannot be read from it. The output of a frame depends on all frames before and after it, not on that "
            "frame alone. The best path need not give the most likely text."
        ),
        options={
            "example": "index of the example, from 0",
        },
    ),
    "denoising": RegisteredView(
        "image_generation.draw_denoising",
        needs=("denoises_images",),
        model_runs=90,
        says="diffusion sampling step by step, the noise schedule, and the loss at each timestep",
        read=(
            "Each image starts as noise at the largest timestep t and is denoised to t = 0. The upper row is x_t, "
            "the lower row x̂_0, the image that remains if the predicted noise is removed at once: black and white "
            "while x_t holds almost no image, then a blur (the mean of all possible images), and sharper as t "
            "decreases. The curves show how much of x_t is image and how much is noise, the signal-to-noise ratio "
            "ᾱ_t / (1 − ᾱ_t), and the mean squared error of the predicted noise: 1 is the error of predicting zero, "
            "0 is a perfect prediction."
        ),
        misleads=(
            "A low loss at large t is easy, because x_t is almost pure noise there; a high loss at small t is no "
            "failure, because the remaining noise is invisible. Compare the same timestep between models, not "
            "timesteps with each other. An intermediate x̂_0 is a mean, not an image that the model would sample. A "
            "few samples show neither the diversity of images nor whether they were memorized; guidance makes them "
            "more typical and less diverse."
        ),
        options={
            "class": "class of the images, by name; default the first few classes",
            "seed": "seed of the initial noise of the first image",
            "steps": "number of sampling steps; default 50",
            "guidance": "scale of classifier-free guidance; default 2",
        },
    ),
    "latent": RegisteredView(
        "image_generation.draw_latent",
        kinds=("image",),
        needs=("encodes_images",),
        says="latent code of a variational auto-encoder: reconstructions, and the effect of each latent dimension",
        read=(
            "At the top are images and their reconstructions: losses are missing from the code. Below, one latent "
            "dimension of one image's code is varied from −3 to 3, where nearly all of p(z) lies, and the others are "
            "fixed: what changes along a row is what the dimension encodes. The bars are the KL divergence of each "
            "dimension from p(z), averaged over images, in nats: the information that it carries. A dimension with a "
            "KL divergence of zero is unused, and varying it changes nothing."
        ),
        misleads=(
            "A dimension need not have one meaning: nothing aligns the latent axes with human concepts, and another "
            "seed gives other axes. A row is valid for this image's code; for another image the same dimension can "
            "have another effect. The means of p(x | z) are drawn, which are smoother than likely images."
        ),
        options={
            "example": "index of the example whose code is varied, from 0",
        },
    ),
    "pixels": RegisteredView(
        "image_generation.draw_pixels",
        kinds=("image",),
        needs=("samples_pixels",),
        model_runs=40,
        says="new images and completions of a model of image tokens, the bits of each pixel, and attention over pixels",
        read=(
            "New images are sampled pixel by pixel, row by row. A completion keeps the upper half of an image and "
            "samples the lower half; the original is beside it. The bits of a pixel are −log₂ of the probability that "
            "the model gave it: dark is 0, white the largest of the image. Bits are small where pixels follow from "
            "those before them. The maps of attention belong to the prediction of one pixel, which is drawn white, "
            "and show the weight of each earlier pixel, scaled to the largest of the map; all later pixels are masked. "
            "The table has the mean weight of three keys over all pixels: the start token, the pixel to the left, and "
            "the pixel above. With captions, new images are sampled with those of the examples, the table also has the "
            "weight of all words of the caption together, and a matrix shows that of each word in the prediction of "
            "the one pixel."
        ),
        misleads=(
            "A few samples do not show the diversity of images, nor whether training images were memorized. Many "
            "lower halves fit an upper half: a completion that differs from the original is no error. Attention to a "
            "pixel is not its influence on the prediction: values are mixed further in the next layers, and a weight "
            "on the start token can mean that a head has nothing to add."
        ),
        options={
            "class": "class of the new images, by name; default the first ten classes",
            "prompt": "caption of the new images, for runs trained on captions; default those of the examples",
            "example": "index of the example whose bits and attention are drawn, from 0",
            "pixel": "index of the pixel whose attention is drawn, row by row from 0; default the middle one",
            "seed": "seed of the first new image",
            "temperature": "sampling temperature; default 1",
        },
    ),
    "graph": RegisteredView(
        "message_passing.draw_graph",
        needs=("passes_messages",),
        says="message passing on a graph by layer and head, its receptive field, and over-smoothing of the nodes",
        read=(
            "The width of a line is the coefficient of the message along that edge. Point at a node: its incoming "
            "edges stay dark, and the text above names its strongest neighbors; choose another layer or head. The "
            "reach curve shows the fraction of the graph that can influence a node's output after each number of "
            "layers, with a mark at the depth of this model. If the cosine of linked nodes rises towards 1 from "
            "layer to layer, and the energy falls from 1 towards 0, node representations become indistinguishable: "
            "this is over-smoothing."
        ),
        misleads=(
            "The position of a node in the drawing has no meaning: it comes from a force-directed layout, and "
            "another layout would place it elsewhere. In gcn, gin and graphconv the coefficients depend on the "
            "number of edges alone and are not learned; in gat they are learned, but a large one need not matter for "
            "the output (Jain and Wallace 2019, https://arxiv.org/abs/1902.10186, on attention in text), and a small "
            "one times a large vector can. Reach is what a node can depend on, not what it uses: much of it fades "
            "with distance (Alon and Yahav 2021, https://arxiv.org/abs/2006.05205). Linked nodes of one class should "
            "become similar: a rising cosine is harmful only if nodes of different classes become similar as well. "
            "Each layer is measured before its activation."
        ),
        options={
            "node": "central node, by index or name",
            "example": "index of the graph, from 0, if there are several",
        },
    ),
    "attribution": RegisteredView(
        "attribution.draw_attribution",
        needs=("has_inputs",),
        model_runs=40,
        says="attribution: the parts of an example that an output depends on, and sanity checks of each map",
        read=(
            "Purple parts increase the explained output, green parts decrease it; gray parts have no effect. Several "
            "methods are shown together because they answer different questions: integrated gradients distribute the "
            "change from a baseline over the parts, occlusion covers a part and measures the loss, Grad-CAM shows "
            "where the last feature maps were active, and rollout follows attention alone. Their checks are below "
            "the maps: whether the values sum to the change of the output, and how similar the map stays when the "
            "weights are randomized from the output down. Maps that fail a check are labeled."
        ),
        misleads=(
            "A map shows what this output of this model depends on, not the identity of the object or why the model "
            "learned it. The baseline is a choice, and another baseline gives another map: a black image is not "
            "neutral for a model that looks for black (P. Sturmfels, S. Lundberg, S.-I. Lee, Visualizing the impact "
            "of feature attribution baselines, 2020). If two parts are redundant, occlusion finds neither. Some maps "
            "look plausible only because they show the edges of the input, independent of the weights (J. Adebayo et "
            "al., Sanity checks for saliency maps, 2018): the second check tests for this, but passing it does not "
            "make a map correct. Rollout ignores values and MLPs and is the same for every class. For an untrained "
            "network the maps explain noise."
        ),
        options={
            "method": (
                "a single method instead of the default selection: gradient, input_x_gradient, integrated_gradients, "
                "gradient_shap, kernel_shap, occlusion, edges, grad_cam, rollout"
            ),
            "target": "class or output to explain, by name or index; 3:7 is output 7 at position 3 of a text",
            "example": "index of the example, from 0",
            "layer": "layer for Grad-CAM or a concept",
            "concept": "folder of examples of a concept, to test whether the class depends on it (TCAV)",
        },
    ),
    "adversarial": RegisteredView(
        "adversarial.draw_adversarial",
        needs=("classifies_images",),
        says="adversarial examples: the smallest change of an image that makes a classifier err, by FGSM and PGD",
        read=(
            "Each pixel, from 0 to 1, may change by at most ε. FGSM changes all pixels by ε in one step, along the "
            "sign of the loss's gradient; PGD takes many small steps and stays within ε. The slider selects ε and "
            "shows the original image, the perturbation (gray is zero, white and black are ±ε; it is drawn magnified "
            "by the factor in its label) and the sum, with the prediction of the model. The curves are the class "
            "probabilities over ε; the vertical line marks the first ε at which the model errs. A network that was "
            "trained on such images (attack=pgd) resists larger ε, and the perturbation that fools it looks more "
            "like the other class."
        ),
        misleads=(
            "An attack that fails proves nothing: a stronger one may succeed. A class can become likely again at a "
            "larger ε, because one step of FGSM can be too long. Whether a person notices a change depends on the "
            "image: ε = 0.1 is obvious on a photo and barely visible on a digit. One image says little about others; "
            "`cutaway evaluate RUN --attack pgd --eps 0.1` measures the accuracy over the test split."
        ),
        options={
            "example": "index of the image, from 0",
            "eps": (
                "largest change of a pixel, whose range is 0 to 1; default 0.3 for grayscale and 0.03 for color images"
            ),
            "steps": "steps of PGD; default 20",
        },
    ),
    "gradients": RegisteredView(
        "gradients.draw_gradients",
        needs=("has_gradients",),
        says="gradient flow: gradient norms by layer, update sizes, dead units, and gradients through time",
        read=(
            "Follow the curve from the right, where the loss is, to the left. If it falls by orders of magnitude, "
            "the first layers learn very slowly (vanishing gradients); if it rises, their steps are too long "
            "(exploding gradients). A step should change weights by about a thousandth of their size: with far more, "
            "training is unstable, with far less it makes no progress. For recurrent networks the second curve shows "
            "the gradient that reaches each step of the sequence. For residual networks the gradient at each block's "
            "input is split into the part through the shortcut and the part through the block's layers, and compared "
            "with the same network without shortcuts."
        ),
        misleads=(
            "These are the gradients of a few examples at one moment: others give other values, and norms do not "
            "show the direction. A layer with more weights has a larger norm for that reason alone. Batch "
            "normalization hides the scale of weights, so a step that is small relative to the weights may still "
            "change the layer's output strongly. A unit is called dead if no gradient reaches it from these "
            "examples; other examples may activate it. If there are no targets, the loss is that of random ones."
        ),
    ),
    "quantization": RegisteredView(
        "quantization.draw_quantization",
        needs=("is_quantized_run",),
        says="quantization error of each layer, weights before and after, and the effect of each layer on the output",
        read=(
            "An error is relative: the norm of the difference from the float network divided by the norm of the "
            "float output, so 1 % is a signal-to-noise ratio of 40 dB. A layer's own error uses the float network's "
            "inputs; the accumulated error uses the outputs of the preceding quantized layers. Next is the effect of "
            "each layer: the error of the model's output and the change of its loss if only this layer is quantized, "
            "and if all layers but this one are quantized. A layer that stands out is worth keeping in float. In the "
            "histogram of integers, see how many values are used: if nearly all are near 0, a few large weights "
            "determine the step size."
        ),
        misleads=(
            "An output error is not a prediction error: a class stays the same until another score exceeds it, so 5 "
            "% may cost no accuracy and 1 % a point. Errors are not additive: later layers can cancel or clip them, "
            "and the layer with the largest error alone need not be the one whose exclusion helps most. Loss changes "
            "over so small a sample are partly noise, and may be negative. A histogram is over all weights of a "
            "layer, while each channel or group has its own step size. Nothing here shows speed."
        ),
        options={
            "layer": "name of the layer whose weights are shown",
            "before": "path of the float run that it was quantized from, if that was moved",
        },
    ),
    "time": RegisteredView(
        "training_moments.draw_time",
        needs=("has_saved_moments", "has_inputs"),
        says="another view at several moments of training, with a slider",
        read=(
            "The slider goes from the first saved weights of the run to the last. What is present at the start comes "
            "from initialization and architecture; what appears later is learned, often early in training. With "
            "`snapshots=12` a run saves weights at twelve moments, closer together at the beginning."
        ),
        misleads=(
            "Nothing is known between two moments: an apparent jump may have been gradual, and a smooth curve may "
            "have jumped. If colors are scaled to the range of a drawing, the same color means different values at "
            "different moments. The best weights were chosen by validation and need not be those of the longest "
            "training."
        ),
        options={
            "of": "view to show at each moment, e.g. filters; its options are accepted too",
            "moments": "maximum number of moments, 2 to 24",
        },
    ),
}


def find_view(name: str) -> RegisteredView:
    """Return the entry of a view.

    Raises:
        UnknownName: If there is no such view; the message has the nearest names.
    """
    if name not in VIEWS:
        raise UnknownName("view", name, VIEWS, "`cutaway inspect --help` lists them.")
    return VIEWS[name]


def suits(name: str, subject: Subject) -> bool:
    """Return whether the model and its examples meet the requirements of the view."""
    view = find_view(name)
    if view.kinds and subject.kind not in view.kinds:
        return False
    requirements = import_module(".requirements", __package__)  # needs torch
    return all(getattr(requirements, need)(subject) for need in view.needs)


def suitable_views(subject: Subject) -> list[str]:
    """Return the names of the views that apply to the subject."""
    return [name for name in VIEWS if suits(name, subject)]


def view_function(name: str) -> Callable[[Subject], View]:
    """Import the file of a view and return the function that draws it."""
    written = find_view(name).draw
    module, of_plugin, function = written.partition(":")
    if not of_plugin:
        file, _, function = written.rpartition(".")
        module = f"{__package__}.{file}"
    draw: Callable[[Subject], View] = getattr(import_module(module), function)
    return draw


def draw_view(name: str, subject: Subject) -> View:
    """Return a view of the subject."""
    return view_function(name)(subject)


def view_options(names: Iterable[str]) -> dict[str, list[str]]:
    """Return every option of these views, with the names of the views that have it."""
    found: dict[str, list[str]] = {}
    for name in names:
        for option in find_view(name).options:
            found.setdefault(option, []).append(name)
    return found


def _add_view(name: str, view: object) -> None:
    """Add the view of another package: a RegisteredView whose `draw` is written module:function."""
    if not isinstance(view, RegisteredView) or ":" not in view.draw:
        raise IncompatibleSettingError("it needs a RegisteredView whose draw is written 'module:function'.")
    reject_duplicates("view", [name], VIEWS)
    VIEWS[name] = view


add_plugins("cutaway.views", _add_view)
