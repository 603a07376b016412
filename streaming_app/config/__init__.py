"""The configuration: reads a YAML file, the environment and options, checks the settings, and prints them."""
