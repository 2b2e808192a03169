"""Matrix products, packed weights and threads for C++ forwards: no workload of its own."""
