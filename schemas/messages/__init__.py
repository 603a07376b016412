"""Definitions of requests and responses, which kafka-python loads by package name."""
