"""Image classification: images in, labels out."""
