"""The Python client's transport: what every workload's resources are built on."""
