"""The alert rules and the lifecycle of an alert: what fires, when, and which notifications are due. Pure.

This package must not import Spark, I/O or the clock (import-linter checks it). The job passes the time and the facts,
and writes and sends the results.
"""
