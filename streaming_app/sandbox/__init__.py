"""A local Kafka broker and streams groups on it, for the demo and the tests. Only the command `demo` imports it."""
