"""Training objectives: the losses that a network is trained with."""
