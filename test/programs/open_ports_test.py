"""Test that an open kubelet logs a warning, and that no documented command starts one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import re
import sys
from pathlib import Path

import pytest
from kubelet_cmd.kubelet.app import configuration, open_ports

ROOT = Path(__file__).resolve().parents[2]
ALL = ["address=0.0.0.0", "port=10250", "authentication.anonymous.enabled=true", "authorization.mode=AlwaysAllow"]


def settings(*args: str) -> list[str]:
    loaded = configuration.parse_flags([*args], io.StringIO())
    configuration.load(loaded, [*args])
    return open_ports.settings_of_open_ports(loaded.kubelet_configuration)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], [*ALL, "readOnlyPort=10255"]),
        (["--read-only-port=0"], ALL),
        (["--anonymous-auth=false"], ["address=0.0.0.0", "readOnlyPort=10255"]),
        (["--authorization-mode=Webhook", "--read-only-port=0"], []),
        (["--enable-server=false", "--read-only-port=0"], []),
        (["--address=127.0.0.1"], []),
        (["--address=::1"], []),
        (["--address=::", "--read-only-port=0"], ["address=::", *ALL[1:]]),
    ],
    ids=" ".join,
)
def test_flags_alone(flags: list[str], expected: list[str]) -> None:
    assert settings(*flags) == expected


def test_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    open_ports.warn_of_open_ports(configuration.parse_flags([], io.StringIO()).kubelet_configuration)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("W")
    assert "OPEN TO EVERYBODY" in line
    assert f'settings="{", ".join([*ALL, "readOnlyPort=10255"])}"' in line


def test_a_file_without_more_is_not_open(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    assert settings(f"--config={file}") == []


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))], ids=lambda path: path.name)
def test_no_configuration_of_the_documents_is_open(document: Path, tmp_path: Path) -> None:
    text = document.read_text()
    for number, found in enumerate(re.findall(r"^apiVersion: kubelet\.config.*?(?=^END|^```)", text, re.M | re.S)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(found)
        assert settings(f"--config={file}") == []


@pytest.mark.parametrize("endpoint", ["", "unix:///run/none.sock"])
def test_make_run_is_not_open(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    loader = importlib.machinery.SourceFileLoader("hack_run", str(ROOT / "hack" / "run"))
    spec = importlib.util.spec_from_loader("hack_run", loader)
    assert spec is not None
    run = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "hack_run", run)
    loader.exec_module(run)
    monkeypatch.setattr(run, "CONFIG", tmp_path / "kubelet.yaml")
    monkeypatch.setattr(run, "make_client_certificate", lambda: tmp_path / "ca.crt")
    monkeypatch.setattr(run, "cgroup_driver", lambda endpoint: "cgroupfs")
    run.write_config(endpoint, 10250, 10255, 10248)
    assert settings(f"--config={run.CONFIG}") == []
