"""Metrics for Prometheus: their definitions, and the collector that computes the samples at each scrape."""
