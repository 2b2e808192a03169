"""The embedding engine: texts in, vectors out, over a text encoder."""
