"""Checks before the first start of the job (`check`), and comparisons of the tables with the brokers (`verify`).

For `check`, each module returns `Result`s about this machine, the brokers, the warehouse or the sinks. These checks
change nothing, except that they write and remove a test file, fetch jars, and send test notifications on request. For
`verify`, `compare` compares one group, and `verification` all groups of a cluster.
"""
