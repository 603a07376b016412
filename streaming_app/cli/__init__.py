"""The `streams-groups` command: its options and its output. The work of the commands is in other packages."""
