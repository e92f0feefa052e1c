"""Speed and memory beside peers. `make bench` runs all of it and writes docs/benchmarks.md."""
