"""Images that nothing runs, made for tests: what is in them is of no interest but for its size."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

from framework.containerd import ROOT, Containerd, search_path


def import_filler(containerd: Containerd, reference: str, mebibytes: int) -> None:
    """Give a containerd an image of this size; with what it unpacks, it takes twice that of the disk."""
    build_images = load_script("build_images")
    layer = [build_images.Entry("filler", 0o644, bytes(mebibytes << 20))]
    archive = build_images.oci_archive(build_images.Image("filler", reference, [layer]))
    command = ["ctr", "--address", str(containerd.socket), "--namespace", "k8s.io", "images", "import", "-"]
    subprocess.run(command, input=archive, check=True, capture_output=True, env={"PATH": search_path()})


def load_script(name: str) -> ModuleType:
    """A developer script as a module; it has no .py that import would look for."""
    loader = SourceFileLoader(f"hack_{name}", str(ROOT / "hack" / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for the types of their fields
    loader.exec_module(module)
    return module
