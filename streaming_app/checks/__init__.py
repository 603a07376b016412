"""Does it hold? What must hold before the first start of the job, and that the tables say what the brokers say.

Of the first kind each module returns `Result`s about this machine, the brokers, the warehouse or the sinks, which the
command `check` prints. Nothing there changes anything, except for a test file that is written and removed, jars that
are fetched, and test notifications if they are asked for. Of the second kind `compare` looks at one group, and
`verification` at all groups of a cluster.
"""
