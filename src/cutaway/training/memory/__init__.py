"""Memory of a training step, simulated on fake tensors and distributed over the processes that share it."""
