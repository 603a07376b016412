"""The alert rules and the lifecycle of an alert: what fires, when, and which notifications are due. Pure.

Neither Spark nor I/O nor the clock may be imported here (import-linter checks it): the job passes the time and what it
has read, and writes and sends the results.
"""
