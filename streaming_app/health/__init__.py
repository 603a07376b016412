"""Whether each group processes what it should: one verdict a group, from its records, its commits and the logs. Pure.

Neither Spark nor I/O nor the clock may be imported here (import-linter checks it): the job passes the time and what it
has read.
"""
