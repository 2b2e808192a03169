"""The workloads that come with the platform."""
