"""Measured claims: one script each, run as `python -m benchmarks.<name>` from the project's root."""
