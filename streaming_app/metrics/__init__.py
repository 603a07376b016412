"""Metrics for Prometheus, and the HTTP answers about the job."""
