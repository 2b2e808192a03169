"""The ASGI app built from workload records."""
