"""An OAuth 2 token endpoint on loopback for the client credentials grant, over HTTP."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

CLIENT_ID, CLIENT_SECRET = "job-client", "client-s3cret"


@contextmanager
def token_endpoint(create_token: Callable[[], str]) -> Iterator[str]:
    """Yield the URL of an endpoint that returns a token for CLIENT_ID with the scope `kafka`, and 401 for others."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            credentials = "Basic " + base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            is_valid = self.headers["Authorization"] == credentials
            is_valid = is_valid and form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
            response = {"access_token": create_token(), "expires_in": 300} if is_valid else {"error": "invalid_client"}
            body = json.dumps(response).encode()
            self.send_response(200 if is_valid else 401)
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
