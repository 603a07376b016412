"""The `streams-groups` command: its options, and what commands print. What they do is in other packages."""
