"""Videos: files and folders of frames, and what the network gets of them."""
