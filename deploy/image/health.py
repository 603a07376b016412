"""The health check of the image: exits with 1 if neither the job (port 9464) nor the page (8080) answers."""

import sys
from contextlib import suppress
from urllib.request import ProxyHandler, build_opener

for port in (9464, 8080):
    with suppress(OSError):
        build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=4)
        sys.exit(0)
sys.exit(1)
