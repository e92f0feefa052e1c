"""Images: files and folders of them, arrays, and what the network gets of them."""
