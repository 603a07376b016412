"""The answers of the commands that read tables (`list`, `describe`, `sql`, `status`, ...), without Spark."""
