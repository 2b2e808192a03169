"""Pictures from text, and from other pictures, step by step."""
