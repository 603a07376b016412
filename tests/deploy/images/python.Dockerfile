# In place of Docker's python:3.11-slim-bookworm: Debian's Python, under the same name.
FROM stand-in/debian:bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/bin/python3 /usr/local/bin/python
