"""The `streams-groups` command: options, and who is called with them. What commands do lives elsewhere."""
