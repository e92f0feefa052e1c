"""Tables: reading, column types, and preprocessing to network inputs."""
