"""The job: what it starts, in which order, and how it ends. `run` composes the other packages."""
