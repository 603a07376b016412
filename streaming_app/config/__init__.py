"""The configuration: read from a YAML file, the environment and flags, checked, and printed."""
