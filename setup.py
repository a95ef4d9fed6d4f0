"""Define what setup.cfg cannot express: the list of packages, and those with another name after the installation.

The checkout's package `cmd` is installed as `kubelet_cmd`. Its own name cannot be imported, because the standard
library's `cmd` takes precedence. The parts of the test framework that serve other programs are another distribution,
which hack/dist-testing builds.
"""

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py


def packages_below(name: str) -> list[str]:
    found: list[str] = find_namespace_packages(include=[name, f"{name}.*"], exclude=["*.__pycache__"])
    return found


class BuildWithoutTests(build_py):
    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in modules if not module[1].endswith(("_test", "conftest"))]


setup(
    cmdclass={"build_py": BuildWithoutTests},
    packages=[
        *packages_below("kubelet"),
        *packages_below("pkg"),
        *("kubelet_cmd" + name.removeprefix("cmd") for name in packages_below("cmd")),
    ],
    package_dir={"kubelet_cmd": "cmd"},
)
