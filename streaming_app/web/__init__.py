"""The HTTP server, and `/metrics`, `/health` and `/ready` of the job."""
