"""Phases, metrics, logs and spans of requests."""
