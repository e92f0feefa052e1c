"""Audio: .wav files, and the log-mel spectrograms that the network gets of them."""
