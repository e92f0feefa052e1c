"""Images: pictures, files and folders of them, and what the network gets of them."""
