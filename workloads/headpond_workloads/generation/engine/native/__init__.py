"""The forward of Llama-like decoders in C++, for CPUs with AVX-512 and its bfloat16 dot product."""
