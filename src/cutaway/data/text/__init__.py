"""Text: reading and tokenization, text classification, tagged text, running text."""
