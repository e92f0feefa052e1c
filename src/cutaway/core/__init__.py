"""Shared foundations of every package: errors, settings, schemas, files, and the specs of examples and targets."""
