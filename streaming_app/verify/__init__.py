"""Whether the tables say what the brokers say: the comparison of one group (`compare`), and of a cluster (`agreement`).

Neither Spark nor the command line is known here.
"""
