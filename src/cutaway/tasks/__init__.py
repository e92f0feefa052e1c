"""Learning tasks: the loss, metrics and predictions of each kind of target."""
