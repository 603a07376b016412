"""An OAuth 2 token endpoint on loopback: the client credentials grant, over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

CLIENT, SECRET = "job-client", "client-s3cret"


@contextmanager
def token_endpoint(token: Callable[[], str]) -> Iterator[str]:
    """The URL of an endpoint that gives `token()` to CLIENT with SECRET and the scope `kafka`, and 401 to others."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            known = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
            right = self.headers["Authorization"] == known
            right = right and asked == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
            answer = {"access_token": token(), "expires_in": 300} if right else {"error": "invalid_client"}
            body = json.dumps(answer).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/token"
        finally:
            server.shutdown()
            thread.join()
