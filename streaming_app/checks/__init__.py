"""Checks before the first start of the job (`check`), and comparisons of the tables with the brokers (`verify`).

For `check`, the modules `machine`, `brokers`, `warehouse` and `sinks` yield `Result`s. These checks only write and
remove a test file, fetch jars, and on request send test notifications. For `verify`, `compare` compares one group, and
`verification` all groups of a cluster.
"""
