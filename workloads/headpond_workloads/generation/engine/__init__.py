"""The torch engine of text generation, one noun a module."""
