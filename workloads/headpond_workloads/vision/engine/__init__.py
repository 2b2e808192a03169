"""The vision engine: images in, classes out."""
