"""Test the parts of hack/containerd that need no containerd; test/e2e_node tests the others."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from framework.scripts import load_script

containerd = load_script("containerd")


def test_only_dead_sockets_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket must be short.
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind("dead")
    with socket.socket(socket.AF_UNIX) as live:
        live.bind("live")
        live.listen()

        containerd.remove_dead_sockets(Path())

        assert [path.name for path in tmp_path.iterdir()] == ["live"]


def test_subnet_is_free_and_claimed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two run directories get different subnets, although both searches start at the same one.

    This holds even before the first run directory has a bridge.
    """
    layouts = [containerd.Layout(tmp_path / name) for name in ("one", "two")]
    tags = {"one": "0105", "two": "0205"}
    monkeypatch.setattr(containerd.Layout, "tag", property(lambda self: tags[self.run_dir.name]))
    monkeypatch.setattr(containerd, "MACHINE", tmp_path / "machine")
    (tmp_path / "machine" / "users").mkdir(parents=True)
    routes = subprocess.CompletedProcess([], 0, stdout="default via 10.0.0.1 dev eth0\n10.188.5.0/25 dev other\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: routes)

    assert [containerd.claim_subnet(layout) for layout in layouts] == ["10.188.6.0/24", "10.188.7.0/24"]


def test_mount_points_may_have_any_names() -> None:
    r"""A mount point may contain a carriage return, which once made the parser fail.

    A pod with the subPath "a\rb" has such a mount point.
    """
    begin, end = b"36 35 98:0 / ", b" rw - ext4 /dev/sda rw\n"
    names = [b"/a\rb", rb"/two\040words", rb"/back\134slash", b"/\xff"]
    table = b"".join(begin + name + end for name in names)
    assert containerd.mount_points(table) == ["/a\rb", "/two words", "/back\\slash", "/\udcff"]


def test_process_may_have_any_name(tmp_path: Path) -> None:
    """A process whose name is not valid text does not hide the others, and does not prevent the clean-up."""
    name = tmp_path / "\udcff"
    name.symlink_to("/bin/cat")
    with subprocess.Popen([name], stdin=subprocess.PIPE) as process:
        assert containerd.start_time(process.pid) is not None
        assert containerd.process_table()[process.pid][1] == [str(tmp_path / "�"), ""]
