"""What a step holds: imagined on tensors without numbers, and laid out over the processes that share it."""
