"""Metrics for Prometheus: their definitions, and the collector that computes their samples at each scrape."""
