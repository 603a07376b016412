"""The sinks: one module for each kind of receiver of notifications, and what they share."""
