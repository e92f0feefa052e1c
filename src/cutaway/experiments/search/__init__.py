"""Searching: settings and architectures, drawn, trained and compared on the validation split."""
