"""The HTTP server and what it serves: `/metrics`, `/health` and `/ready` of the job, and the page that people read.

The views of the page are pure functions from rows to what is shown. What the commands print is in `queries`.
"""
