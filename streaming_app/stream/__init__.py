"""One micro-batch from the Kafka source to the tables, and what must hold before the first one."""
