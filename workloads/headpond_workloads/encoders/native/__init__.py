"""Text encoders in C++ for CPUs."""
