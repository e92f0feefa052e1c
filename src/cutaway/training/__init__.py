"""How it is learned: the loop, optimizers, schedules, checkpoints."""
