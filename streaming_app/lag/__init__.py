"""Lag of committed offsets: how far a group is behind the end of the log, since when, and which task is affected.

Pure: no Spark, no I/O and no clock. Times are seconds since 1970, by the job's clock unless stated otherwise.
"""
