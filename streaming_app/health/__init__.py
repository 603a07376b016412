"""Whether each group processes its input: one verdict per group, from its records, its commits and the logs. Pure.

This package must not import Spark, I/O or the clock (import-linter checks it). The job passes the time and the facts.
"""
