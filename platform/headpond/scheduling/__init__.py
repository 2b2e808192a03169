"""The loops that drive engines."""
