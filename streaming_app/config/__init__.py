"""What the program is told by a YAML file, the environment and flags, and how that is checked and shown."""
