"""The drawing modules, the descriptions that they take, and the page that holds both."""
