"""Budgets of state and work, fair queueing, and the measured drain rate."""
