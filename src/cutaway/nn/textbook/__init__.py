"""The mathematics written out: convolution, pooling, back-propagation, folding, as the views and the errata show it."""
