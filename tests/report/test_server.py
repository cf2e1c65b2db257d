"""The server of the live page: whom it answers, and that it only reads."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import REAL
from support.processes import DEADLINE, started, wait_until
from support.serving import serving

from gossamer.errors import DataError, InputError
from gossamer.report.server import Server

pytestmark = pytest.mark.slow


def request(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    return (
        response.status,
        {name.lower(): value for name, value in response.getheaders()},
        response.read(),
    )


@pytest.fixture
def server(finished: Path) -> Iterator[Server]:
    with serving(finished) as found:
        yield found


def test_the_server_listens_on_this_machine_only(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_address[1]}/"


def test_only_known_paths_and_methods_are_answered(server: Server, finished: Path) -> None:
    assert [request(server, path)[0] for path in ("/", "/content.json", "/data/0.json")] == [
        200,
        200,
        200,
    ]
    for path in (
        "/data/1.json",
        "/data/00000.json",
        "/data/-1.json",
        "/data/../../run/spec.toml",
        "/../spec.toml",
        "/%2e%2e/spec.toml",
        "/spec.toml",
        "/content.json?x=1",
        "/content.json/",
        "http://elsewhere.example/content.json",
        str(finished / "spec.toml"),
    ):
        assert request(server, path)[0] in (404, 421), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"):
        status, headers, _ = request(server, "/content.json", method)
        assert status == 501
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.1.2.3", "[::", ""]
)
def test_a_foreign_host_name_is_refused(server: Server, host: str) -> None:
    for path in ("/", "/content.json", "/data/0.json"):
        status, _, body = request(server, path, Host=host)
        assert status == 421
        assert b"accuracy" not in body


def test_a_public_server_accepts_any_address_but_no_foreign_name(finished: Path) -> None:
    with serving(finished, host="0.0.0.0") as server:
        assert [
            request(server, "/", Host=host)[0]
            for host in ("10.1.2.3:80", "localhost", "evil.example")
        ] == [200, 200, 421]


def test_headers_are_strict(server: Server) -> None:
    for path in ("/", "/content.json", "/nothing"):
        headers = request(server, path)[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert headers["server"].strip() == "gossamer"
    page = request(server, "/")[2].decode()
    assert "default-src 'none'" in page
    assert "connect-src 'self'" in page


def test_unchanged_content_is_not_sent_again(server: Server) -> None:
    _, headers, body = request(server, "/content.json")
    status, _, again = request(server, "/content.json", If_None_Match=headers["etag"])
    assert (status, again) == (304, b"")
    assert json.loads(body)["runs"][0]["finished"]


def test_the_number_of_connections_is_limited(server: Server) -> None:
    address = ("127.0.0.1", server.server_address[1])
    free: Any = server._free
    waiting = [socket.create_connection(address) for _ in range(16)]
    try:
        wait_until(lambda: free._value == 0, "all connections are in use")
        with socket.create_connection(address) as more:
            more.settimeout(30)
            assert more.recv(10) == b""  # closed by the server
    finally:
        for connection in waiting:
            connection.close()
    wait_until(lambda: free._value == 16, "all connections are free")
    assert request(server, "/content.json")[0] == 200


def test_a_damaged_file_is_reported_until_it_is_repaired(finished: Path) -> None:
    with serving(finished) as server:
        kept = (finished / "metrics.parquet").read_bytes()
        (finished / "metrics.parquet").write_bytes(b"PAR1")
        server.watch._read_at = 0.0
        status, _, body = request(server, "/content.json")
        assert status == 503
        assert b"not a whole Parquet file" in body
        (finished / "metrics.parquet").write_bytes(kept)
        assert request(server, "/content.json")[0] == 200


def test_what_cannot_be_served_is_refused(tmp_path: Path, finished: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        Server(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no run"):
        Server(tmp_path / "empty")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="that is free"):
            Server(finished, port=taken.getsockname()[1])
    with pytest.raises(InputError, match="that is free"):
        Server(finished, host="192.0.2.1")
    with pytest.raises(InputError, match="that is free"):
        Server(finished, port=99_999)


def test_the_command_prints_the_address_and_ends_on_a_signal(finished: Path) -> None:
    with started([*REAL, "watch", finished], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"watching {finished} at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
