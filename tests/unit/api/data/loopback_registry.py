"""A small schema registry on the loopback interface, and what serializers write before a value."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class LoopbackRegistry:
    """`answers`: what it says by path and query; a number is the HTTP status of a failure."""

    def __init__(self, port: int) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str | None]] = []  # paths, and whom the caller claims to be
        self.address = f"http://127.0.0.1:{port}"

    def add(self, number: int, schema: str, kind: str | None = None, query: str = "", **more: Any) -> None:
        told = {"schema": schema, **({"schemaType": kind} if kind else {}), **more}
        self.answers[f"/schemas/ids/{number}{query}"] = told


@contextmanager
def loopback_registry() -> Iterator[LoopbackRegistry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, self.headers.get("Authorization")))
            found = registry.answers.get(self.path, 404)
            status, told = (found, {"error_code": found}) if isinstance(found, int) else (200, found)
            body = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = LoopbackRegistry(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield registry
        server.shutdown()
        thread.join(10)


def framed(number: int, encoded: bytes, indexes: bytes = b"") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + encoded


def host_of(registry: LoopbackRegistry) -> str:
    return urlsplit(registry.address).netloc
