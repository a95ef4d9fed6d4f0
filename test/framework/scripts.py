"""Load the project's scripts as modules, for tests of their parts."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

_HACK = Path(__file__).resolve().parents[2] / "hack"


def load_script(name: str) -> ModuleType:
    """Load a developer script as a module. Its name has no ".py", so `import` would not find it."""
    loader = SourceFileLoader(f"hack_{name}", str(_HACK / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module  # The dataclasses of the script find the types of their fields there.
    loader.exec_module(module)
    return module
