"""Language generation."""
