"""Where notifications go: one module for each kind of receiver, and what they share."""
