"""The alert rules and the lifecycle of an alert: what fires, when, and which notifications are due.

Pure: no pyspark, no clock and no I/O may be imported here (import-linter checks it). The evaluator one level up passes
the time, reads the groups and writes the results.
"""
