"""Compares the tables with the brokers: one group (`compare`), and all groups of a cluster (`verification`).

No Spark and no command line here.
"""
