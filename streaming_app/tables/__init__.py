"""The warehouse: its Delta tables and the small files next to them, written by the job and read without Spark."""
