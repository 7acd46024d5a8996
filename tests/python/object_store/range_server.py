"""An HTTP server with ranges and with deliberate faults. The first part of a path is the fault: /hangs/name."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves the contents in `files` under every fault."""

    daemon_threads = True
    # Requests that are in progress when a test ends must not delay the end.
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.tag = '"first"'
        self.requests: list[tuple[str, str, str | None]] = []
        self.most_at_once = 0
        self.sent = 0
        self.ends = threading.Event()
        self._at_once = 0
        self._lock = threading.Lock()

    def uri(self, fault: str, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{fault}/{name}"

    def ranges(self) -> list[str | None]:
        """The header Range of each GET request."""
        return [wanted for method, _, wanted in self.requests if method == "GET"]

    def begin(self, method: str, path: str, wanted: str | None) -> int:
        """Returns the number of earlier requests with this method."""
        with self._lock:
            earlier = sum(known == method for known, _, _ in self.requests)
            self.requests.append((method, path, wanted))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return earlier

    def end(self) -> None:
        with self._lock:
            self._at_once -= 1

    def handle_error(self, request, client_address):
        """Clients may close connections at any time."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format, *args):
        pass

    def do_HEAD(self):
        self.answer("HEAD")

    def do_GET(self):
        self.answer("GET")

    def answer(self, method: str) -> None:
        wanted = self.headers.get("Range")
        earlier = self.server.begin(method, self.path, wanted)
        try:
            self.answer_with_fault(method, wanted, earlier)
        finally:
            self.server.end()

    def answer_with_fault(self, method: str, wanted: str | None, earlier: int) -> None:
        _, fault, name = self.path.split("/", 2)
        content = self.server.files.get(name)
        is_get = method == "GET"
        if fault == "hangs" and is_get or fault == "hangs-at-once":
            self.server.ends.wait(60)
            self.close_connection = True
            return
        if fault == "drops" and is_get:
            self.close_connection = True
            return
        if fault in ("401", "403", "404", "500"):
            return self.status(int(fault))
        if fault == "503-twice" and is_get and earlier < 2:
            return self.status(503)
        if content is None:
            return self.status(404)
        tag = self.server.tag
        if fault == "changes" and is_get and earlier >= 1:
            tag = '"second"'
        if fault == "weak":
            tag = "W/" + tag
        total = len(content)
        if fault == "grows" and is_get:
            total += 1
        if fault == "states-more" and not is_get:
            total += 1000
        if is_get and fault != "ignores-if-match" and fault != "changes":
            expected = self.headers.get("If-Match")
            if expected is not None and expected != tag:
                return self.status(412)
        if not is_get or wanted is None or fault == "ignores-range":
            self.send_response(200)
            body = content
        else:
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups())
            if first >= len(content):
                return self.status(416)
            body = content[first : last + 1]
            if fault == "other-range":
                first += 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{total}")
        self.send_header("Content-Length", str(len(body) if is_get else total))
        if fault == "without-tag":
            self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        elif fault != "without-version":
            self.send_header("ETag", tag)
        self.end_headers()
        if not is_get:
            return
        if fault == "cuts":
            body = body[: len(body) // 2]
            self.close_connection = True
        if fault == "trickles":
            for at in range(len(body)):
                if self.server.ends.wait(0.2):
                    break
                self.wfile.write(body[at : at + 1])
            return
        if fault == "slow":
            time.sleep(0.05)
        self.wfile.write(body)
        self.server.sent += len(body)

    def status(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()
