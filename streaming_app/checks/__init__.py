"""What must hold before the first start of the job: this machine, the brokers, the warehouse, the sinks.

Each module returns `Result`s; the command `check` prints them. Nothing here changes anything, except for a test file
that is written and removed, jars that are fetched, and test notifications if they are asked for.
"""
