"""Grafana dashboards and Prometheus alert rules, derived from the workload records."""
