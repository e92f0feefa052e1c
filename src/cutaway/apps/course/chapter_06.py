"""Exercises of chapter 6: parameters and cost of deep networks, and the effect of shortcuts."""

from __future__ import annotations

import math

import numpy as np

from .exercises import Answer, Exercises, pair, same

EXERCISES = exercise = Exercises()


@exercise(
    "table_parameters(table, k)",
    "Weights and biases of a convolution by a table: map i of the output sees the input maps in table[i], by a k×k "
    "kernel for each, and has one bias.",
    level="easy",
)
def table_parameters(answer: Answer) -> None:
    """Check one kernel for each connection and one bias for each map."""
    lenet = [3] * 6 + [4] * 9 + [6]
    for sizes, k in (([2, 1], 3), (lenet, 5)):
        table = [tuple(range(n)) for n in sizes]
        right = sum(n * k * k + 1 for n in sizes)
        wrong = (
            (right - len(sizes), "Each output map has a bias."),
            (
                len(sizes) * (max(sizes) * k * k + 1),
                "That connects every map to all inputs: use the connections of the table.",
            ),
            (len(sizes) * (k * k + 1), "A map has a kernel for each map that it sees."),
        )
        name = "LeNet-5's table and k = 5" if k == 5 else "the table ((0, 1), (0)) and k = 3"
        same(answer(table, k), right, f"For {name}", wrong)


@exercise(
    "stack(k, layers, channels)",
    "(field, weights) of that many k×k convolutions in a row, stride 1, all with that many channels in and out, no "
    "biases: how far one output sees along an axis, and how many weights there are.",
    level="easy",
)
def stack(answer: Answer) -> None:
    """Check the receptive field and the number of weights of stacked convolutions."""
    for k, layers, channels in ((3, 2, 64), (5, 1, 64), (3, 3, 8)):
        when = f"For {layers} layers of {k}×{k} on {channels} channels, of"
        field, weights = pair(answer(k, layers, channels), ("field", "weights"), when.removesuffix(", of"))
        wrong = (
            (k * layers, "Fields overlap: each layer adds k - 1 to the first."),
            (k**layers, "Fields add up: each layer adds k - 1."),
        )
        same(field, 1 + layers * (k - 1), f"{when} the field", wrong)
        wrong = (
            (layers * k * k * channels, "Each of the output channels has a kernel for each input channel."),
            (k * k * channels**2, "That is one layer."),
        )
        same(weights, layers * k * k * channels**2, f"{when} the weights", wrong)


@exercise(
    "bottleneck(channels, width, side)",
    "Multiplications of a bottleneck on a map of side × side: 1×1 from `channels` to `width`, 3×3 from `width` to "
    "`width`, 1×1 back to `channels`, each at every place, stride 1; biases do not count.",
    level="easy",
)
def bottleneck(answer: Answer) -> None:
    """Check three convolutions at every pixel."""
    for c, w, side in ((256, 64, 56), (8, 2, 4)):
        each = 2 * c * w + 9 * w * w
        wrong = (
            (each, "That is for one pixel: each of side × side has as many."),
            ((c * w + 9 * w * w) * side**2, "The way back to all channels is missing."),
            (
                (2 * c * w + 9 * c * c) * side**2,
                "The 3×3 sees `width` channels, not all: hence the bottleneck.",
            ),
            ((2 * c * w + w * w) * side**2, "A 3×3 kernel has nine entries."),
        )
        same(answer(c, w, side), each * side**2, f"For {c} channels, width {w}, a map of {side}×{side}", wrong)


@exercise(
    "through_block(J, g)",
    "The gradient at the input x of y = x + F(x), from the gradient g (n,) at y and F's Jacobian, J_ij = ∂F_i/∂x_j.",
    level="easy",
)
def through_block(answer: Answer) -> None:
    """Check the gradient of the shortcut and of the layers, transposed."""
    J, g = np.array([[0.0, 2.0], [1.0, -1.0]]), np.array([1.0, 3.0])
    wrong = (
        (J.T @ g, "That is the layers' part alone: the shortcut brings g itself."),
        (g + J @ g, "Gradients go back through the transpose: Jᵀ g."),
        (g, "That is the shortcut's part alone."),
        (g * (J.T @ g), "The two ways add up."),
    )
    same(answer(J, g), g + J.T @ g, "For J = ((0, 2), (1, -1)), g = (1, 3)", wrong)


@exercise(
    "paths(blocks)",
    "How many ways lead through that many residual blocks, by how many blocks' layers they pass: a list for 0, 1, "
    "…, `blocks` of them.",
    level="medium",
)
def paths(answer: Answer) -> None:
    """Check that each block is either passed through or bypassed."""
    for n in (1, 3, 9):
        right = [math.comb(n, k) for k in range(n + 1)]
        wrong = (
            ([1] * (n + 1), "Through k of n blocks there are many ways: which k?"),
            (2**n, "That is all of them together: say how many have each length."),
            (right[1:], "Begin with the way that passes no block's layers: the shortcuts all the way."),
        )
        same(answer(n), right, f"For {n} block{'s' * (n > 1)}", wrong)


@exercise(
    "input_channels(channels, growth, layers)",
    "How many channels each layer of a dense block sees, a list of `layers` numbers: the block is given "
    "`channels`, and each layer adds `growth` to all that there are.",
    level="medium",
)
def input_channels(answer: Answer) -> None:
    """Check the input plus everything that earlier layers added."""
    for c, k, n in ((16, 12, 3), (64, 32, 6)):
        right = [c + k * i for i in range(n)]
        wrong = (
            (
                [c + k * (i + 1) for i in range(n)],
                "That is the number *after* each layer: the first layer sees the input.",
            ),
            ([c] + [k] * (n - 1), "A layer sees everything before it, not the layer before alone."),
            (
                [c + k * i for i in range(n + 1)],
                "The last number is the output of the block: return one number for each layer.",
            ),
        )
        same(answer(c, k, n), right, f"For {c} channels, growth {k}, {n} layers", wrong)
