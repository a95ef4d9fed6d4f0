"""Make images that no container runs, for tests in which only the size of an image matters."""

from __future__ import annotations

import subprocess

from framework.containerd import Containerd, search_path
from framework.scripts import load_script


def import_filler(containerd: Containerd, reference: str, mebibytes: int) -> None:
    """Import an image of this size into a containerd. With the unpacked content it needs twice that on the disk."""
    build_images = load_script("build_images")
    layer = [build_images.Entry("filler", 0o644, bytes(mebibytes << 20))]
    archive = build_images.oci_archive(build_images.Image("filler", reference, [layer]))
    command = ["ctr", "--address", str(containerd.socket), "--namespace", "k8s.io", "images", "import", "-"]
    subprocess.run(command, input=archive, check=True, capture_output=True, env={"PATH": search_path()})
