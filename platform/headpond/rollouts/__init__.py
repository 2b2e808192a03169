"""Rollouts: how an alias goes from one version to another, and back when that is no better."""
