"""vLLM as what advances the slots, in a process and an environment of its own."""
