"""The HTTP server of the job: `/metrics`, `/health` and `/ready`."""
