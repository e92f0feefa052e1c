"""Data larger than memory: shards, their manifest, and what is known of them without reading them."""
