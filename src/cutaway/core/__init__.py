"""What every other package may import: errors, settings, schemas, files, and what examples and targets look like."""
