"""Audio data: files that libsndfile decodes, and their log-mel spectrograms."""
