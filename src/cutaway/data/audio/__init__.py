"""Audio: files that libsndfile decodes, and the log-mel spectrograms that the network gets of them."""
