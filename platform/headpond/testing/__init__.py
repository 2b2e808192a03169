"""Tools for testing workloads and platforms: part of the product."""
