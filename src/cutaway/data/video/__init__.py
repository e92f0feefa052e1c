"""Video data: files, folders of frames and arrays, and their transforms."""
