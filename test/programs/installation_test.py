"""Test the contents of the kubelet's wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from framework.containerd import ROOT


def test_what_is_in_it(tmp_path: Path) -> None:
    contents = zipfile.ZipFile(_wheel(tmp_path)).namelist()
    assert "kubelet/liveview/page.html" in contents
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in contents}
    names = [name for name in contents if name.endswith(".py")]
    assert not [name for name in names if name.endswith("_test.py")]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"kubelet", "kubelet_cmd", "pkg"}


def _wheel(folder: Path) -> Path:
    command = [
        *(sys.executable, "setup.py", "--quiet"),
        # These options keep setuptools from writing to the checkout.
        *("egg_info", f"--egg-base={folder}"),
        *("build", f"--build-base={folder}/build"),
        *("bdist_wheel", f"--bdist-dir={folder}/bdist", f"--dist-dir={folder}/dist"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [made] = (folder / "dist").iterdir()
    return made
