"""Metrics for Prometheus: their definitions, and the collector that reads their samples at each scrape."""
