"""The reranking engine: pairs in, scores out, over a text encoder."""
