"""What can be seen inside a model."""
