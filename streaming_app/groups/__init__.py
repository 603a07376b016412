"""The state of one group of Kafka Streams, of either protocol, and how each record of the log changes it.

Pure functions and data only: no pyspark, no clock and no I/O may be imported here (import-linter checks it).
"""
