"""Explicit reference implementations of convolution, pooling, back-propagation, automatic differentiation and
batch-norm folding."""
