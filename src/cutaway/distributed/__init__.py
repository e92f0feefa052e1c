"""Several processes that learn one model together. PyTorch does the work: torchrun's agent, process groups, DDP."""
