"""Files of images that several workloads read: no workload of its own."""
