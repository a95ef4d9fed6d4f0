"""What setup.cfg cannot say: the checkout's package `cmd` is installed as `kubelet_cmd`.

Installed under its own name it could not be imported: the standard library has a `cmd` too, and wins.
"""

from setuptools import find_namespace_packages, setup


def packages_below(name: str) -> list[str]:
    found: list[str] = find_namespace_packages(include=[name, f"{name}.*"], exclude=["*.__pycache__"])
    return found


setup(
    packages=[
        *packages_below("kubelet"),
        *packages_below("pkg"),
        *("kubelet_cmd" + name.removeprefix("cmd") for name in packages_below("cmd")),
    ],
    package_dir={"kubelet_cmd": "cmd"},
)
