"""Request and response definitions that kafka-python loads by package name."""
