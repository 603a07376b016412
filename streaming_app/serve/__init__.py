"""Answers from the tables without Spark: what `list`, `describe` and `sql` stand on. No JVM is started here."""
