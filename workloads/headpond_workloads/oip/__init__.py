"""The Open Inference Protocol v2: tensors in, tensors out."""
