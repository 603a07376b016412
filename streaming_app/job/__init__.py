"""The job: its services and streams, the order in which they start, and how they end. `run` composes all packages."""
