"""Checks before the first start of the job (`check`) and a migration, and comparisons with the brokers (`verify`).

For `check`, the modules `machine`, `brokers`, `warehouse` and `sinks` yield `Result`s. These checks only write and
remove a test file, fetch jars, and on request send test notifications. For `verify`, `compare` compares one group, and
`verification` all groups of a cluster. For `migrate check`, `migration` judges a group, without I/O, and
`migration_facts` reads what it judges.
"""
