"""The HTTP servers: `/metrics`, `/health` and `/ready` of the job, and the page for users.

The views of the page are pure functions from rows to HTML. The answers of the commands are in `queries`.
"""
