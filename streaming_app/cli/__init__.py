"""The `streams-groups` command: its options, one module for each command. What the commands do is in other packages."""
