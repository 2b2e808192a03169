"""Bundles: versioned, executable contracts for models."""
