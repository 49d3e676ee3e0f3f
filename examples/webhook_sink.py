"""Somebody whom webhooks call: allows deliveries, and prints them. Try it with the page docs/http.md.

python examples/webhook_sink.py [port]
"""

import contextlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sink(BaseHTTPRequestHandler):
    """The two requests of HTTP 1.1 Web Hooks for Event Delivery."""

    protocol_version = "HTTP/1.1"

    def do_OPTIONS(self) -> None:
        """May events be delivered here? Yes, as many as there are, from whoever asks."""
        self.send_response(200)
        self.send_header("WebHook-Allowed-Origin", self.headers.get("WebHook-Request-Origin", "*"))
        self.send_header("WebHook-Allowed-Rate", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        """An event: its attributes are headers, and its data is the body."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        print(self.headers["ce-type"], self.headers["ce-id"], body.decode(), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing besides."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Sink)
    print(f"the sink is at http://127.0.0.1:{server.server_port}/hook", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
