"""Measurements: latency, accuracy, retrieval."""
