"""Text: how it is read and cut into tokens, texts of several classes, tagged text, running text."""
