"""What the site needs beyond Sphinx: source pages, live drawings, notebooks to take along, an index for machines."""
