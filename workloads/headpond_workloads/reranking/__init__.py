"""Reranking: how well documents answer a query."""
