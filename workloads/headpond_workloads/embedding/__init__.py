"""Embeddings: texts in, vectors out."""
