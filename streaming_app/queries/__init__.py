"""What `list`, `describe`, `sql` and `status` print, answered from the tables without Spark."""
