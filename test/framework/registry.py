"""Run an image registry for the tests alone: Debian's docker-registry on a loopback port, and a gate in front of it.

registry = Registry(folder)
registry.start()
image = registry.push("team/app", "1.0")    # 127.0.0.1:PORT/team/app:1.0
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import json
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from framework.containerd import ROOT, hack
from framework.ports import free_port
from framework.waiting import wait_for

USER, PASSWORD = "puller", "open sesame"
# This is the bcrypt hash of the password. The registry accepts no other kind of hash.
_HTPASSWD = f"{USER}:$2b$04$KigBlxniO5fsCxRswESjjepyp.e7lc6O7Db4/tcB1AJ0FJjDISPQ2\n"

_PROGRAM = "docker-registry"
# A TLS connection begins with this byte.
_TLS_HANDSHAKE = b"\x16"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
START_TIMEOUT = 120.0
# GATE_TIMEOUT is the time, in seconds, that the gate holds a request, so that no test hangs forever.
GATE_TIMEOUT = 600.0


class Registry:
    """Run a registry. With `password`, only USER with PASSWORD may pull. Not thread-safe."""

    def __init__(self, folder: Path, password: bool = False) -> None:
        if shutil.which(_PROGRAM) is None:
            raise FileNotFoundError(f"{_PROGRAM} is not installed; hack/setup registry installs it")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.log = folder / "registry.log"
        self._password = password
        self._config = folder / "registry.json"
        config: dict[str, Any] = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
            "http": {"addr": self.host},
        }
        if password:
            (folder / "htpasswd").write_text(_HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
        # Every JSON document is a YAML document.
        self._config.write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [_PROGRAM, "serve", str(self._config)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("the registry responds", self._answers, START_TIMEOUT, self.log.read_text)

    def stop(self) -> None:
        """Kill the registry. It has its images again at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def push(self, repository: str, tag: str, image: str = "busybox", **labels: str) -> str:
        """Push an image of hack/build_images and return its name here. Other labels result in another image."""
        with tarfile.open(archive_of(image)) as layout:
            (described,) = _json(layout, "index.json")["manifests"]
            manifest = _json(layout, _path(described["digest"]))
            config = _json(layout, _path(manifest["config"]["digest"]))
            for layer in manifest["layers"]:
                self._push_blob(repository, _read(layout, _path(layer["digest"])))
        config["config"] = {**config.get("config", {}), "Labels": labels}
        data = json.dumps(config).encode()
        manifest["config"].update(digest=self._push_blob(repository, data), size=len(data))
        manifest["mediaType"] = _MANIFEST
        self._request("PUT", f"/v2/{repository}/manifests/{tag}", json.dumps(manifest).encode(), _MANIFEST)
        return f"{self.host}/{repository}:{tag}"

    def digest_of(self, image: str) -> str:
        """Return the name of a pushed image with its digest."""
        repository, _, tag = image.removeprefix(f"{self.host}/").rpartition(":")
        answer = self._request("HEAD", f"/v2/{repository}/manifests/{tag}")
        return f"{self.host}/{repository}@{answer['Docker-Content-Digest']}"

    def _push_blob(self, repository: str, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        location = self._request("POST", f"/v2/{repository}/blobs/uploads/")["Location"]
        separator = "&" if "?" in location else "?"
        self._request("PUT", f"{location}{separator}digest={digest}", data, "application/octet-stream")
        return digest

    def _answers(self) -> bool:
        try:
            self._request("GET", "/v2/")
        except OSError:
            return False
        return True

    def _request(self, method: str, path: str, data: bytes | None = None, content_type: str = "") -> Any:
        """Return the headers of the response. Raise OSError if the response reports an error."""
        url = path if path.startswith("http:") else f"http://{self.host}{path}"
        headers = {"Accept": _MANIFEST}
        if content_type:
            headers["Content-Type"] = content_type
        if self._password:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.headers


def archive_of(image: str) -> Path:
    """Return the OCI archive of an image of hack/build_images, and build the image if it is missing."""
    hack("build_images")
    # There may be archives of older sources. The newest archive is that of the present sources.
    return max((ROOT / ".build" / "images").glob(f"*/{image}.tar"), key=lambda path: path.stat().st_mtime)


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(layout: tarfile.TarFile, name: str) -> bytes:
    member = layout.extractfile(name)
    assert member is not None
    return member.read()


def _json(layout: tarfile.TarFile, name: str) -> Any:
    return json.loads(_read(layout, name))


class Gate:
    """Hold requests for manifests in front of a registry until the test lets them through, within a `with` block.

    `host` is the gate's host in the names of images. If the gate holds pulls of different repositories, these pulls are
    concurrent.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # The condition guards the three fields below and signals every change of them.
        self._changed = threading.Condition()
        self._held: list[str] = []
        self._open: set[str] = set()
        self.most_held = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.host = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Gate:
        self._thread = threading.Thread(target=self._server.serve_forever, name="gate", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._open.update(self._held)
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def held(self) -> list[str]:
        """Return the repositories whose requests wait."""
        with self._changed:
            return list(self._held)

    def let_through(self, repository: str) -> None:
        """Let requests for the repository through from now on."""
        with self._changed:
            self._open.add(repository)
            self._changed.notify_all()

    def _hold(self, repository: str) -> None:
        with self._changed:
            if repository in self._open:
                return
            self._held.append(repository)
            self.most_held = max(self.most_held, len(self._held))
            self._changed.wait_for(lambda: repository in self._open, GATE_TIMEOUT)
            self._held.remove(repository)

    def _handler(self) -> Callable[..., http.server.BaseHTTPRequestHandler]:
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                """Refuse TLS. Newer runtimes try TLS first, and this response makes them continue without it."""
                if self.connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
                    self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                    return
                super().handle()

            def do_GET(self) -> None:
                repository, manifests, _ = self.path.removeprefix("/v2/").partition("/manifests/")
                if manifests:
                    gate._hold(repository)
                self._forward()

            do_HEAD = do_GET

            def _forward(self) -> None:
                connection = http.client.HTTPConnection(gate._registry.host, timeout=30)
                connection.request(self.command, self.path, headers=dict(self.headers))
                answer = connection.getresponse()
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "date"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                connection.close()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing, because the registry behind the gate keeps a log."""

        return Handler
