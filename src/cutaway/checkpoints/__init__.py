"""Other people's formats, and the independent implementations that ours are held to."""
