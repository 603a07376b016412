"""The warehouse: the Delta tables and the small files next to them. The job writes them; readers need no Spark."""
