"""The alert rules and the lifecycle of an alert: what fires, when, and which notifications are due. Pure.

Neither Spark nor I/O nor the clock may be imported here (import-linter checks it). The job passes the time and the
facts that it has read, and it writes and sends the results.
"""
