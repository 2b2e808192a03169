"""Serve every kind of model behind one router on Ray Serve."""
