"""A local Kafka broker and simulated streams groups, for the demo and the tests. Only the command `demo` imports it."""
