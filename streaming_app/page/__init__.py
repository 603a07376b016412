"""The page: an HTTP server that shows the tables to people. Its views are pure functions from rows to what is shown.

Here are the reading of the tables for the page, the views, the templates, the static files and the server. What the
commands print is in `queries`; the HTTP server of the job is in `web`.
"""
