"""The project's scripts as modules, for tests of their parts."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

_HACK = Path(__file__).resolve().parents[2] / "hack"


def load_script(name: str) -> ModuleType:
    """A developer script as a module; it has no .py that import would look for."""
    loader = SourceFileLoader(f"hack_{name}", str(_HACK / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for the types of their fields
    loader.exec_module(module)
    return module
