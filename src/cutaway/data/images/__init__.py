"""Image data: files, folders, arrays, captions, masks and boxes, and their transforms."""
