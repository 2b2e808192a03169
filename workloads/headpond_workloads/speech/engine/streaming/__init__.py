"""Truly streaming models: each sample is heard once, and what is kept never grows."""
