"""Distributed training of one model by several processes, with PyTorch's torchrun agent, process groups and DDP."""
