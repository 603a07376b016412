"""Whether each group processes its input: one verdict per group, from its records, its commits and the logs. Pure.

Neither Spark nor I/O nor the clock may be imported here (import-linter checks it). The job passes the time and the
facts that it has read.
"""
