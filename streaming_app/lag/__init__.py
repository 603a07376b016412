"""Lag of committed offsets: how far behind the end of the log, for how long, whose task it is, and what that means.

Pure: neither Spark nor I/O nor the clock. Times are seconds since 1970, by the job's clock unless said otherwise.
"""
