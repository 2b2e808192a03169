"""The diffusion engine: requests at different steps share each forward."""
