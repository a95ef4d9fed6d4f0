"""Build the distribution `kubelet-testing` with the package `kubelet_testing`, which contains modules of this tree."""

import ast
import configparser
import shutil
import sys
from pathlib import Path

from setuptools import find_namespace_packages, setup

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# This script and setuptools write their output to this folder, which each run creates again.
BUILD = HERE / "build"
# A build does not have this script's folder in its import path.
sys.path.insert(0, str(ROOT / "hack"))
import testing_distribution  # noqa: E402


def requirements() -> list[str]:
    """Return the requirements of the kubelet and the test API server: the tested versions or later ones.

    No version is pinned, because a project that installs this distribution has its own requirements.
    """
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    pinned = config["options"]["install_requires"] + config["options.extras_require"]["testing"]
    at_least = [line.replace("==", ">=") for line in pinned.splitlines() if line]
    # setup.cfg says why versions 1.84 and 1.85 of grpcio are excluded.
    return [f"{line}, !=1.84.*, !=1.85.*" if line.startswith("grpcio>") else line for line in at_least]


def version() -> str:
    """Return the kubelet's version."""
    text = (ROOT / "pkg/component_base/version/__init__.py").read_text()
    [found] = [
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERSION"
    ]
    return str(found)


shutil.rmtree(BUILD, ignore_errors=True)
testing_distribution.build(BUILD / "package")
for license_file in (*ROOT.glob("LICENSE"), *ROOT.glob("NOTICE")):
    shutil.copy(license_file, BUILD)
setup(
    version=version(),
    package_dir={"": "build/package"},
    packages=find_namespace_packages(str(BUILD / "package")),
    package_data={"": ["*.html", "*.json", "*.pyi", "py.typed"]},
    license_files=["build/LICENSE", "build/NOTICE*"],
    install_requires=requirements(),
)
