"""The programs: `kubelet`, the node agent, and `kubemark`, the same agent over a runtime that runs nothing.

In a checkout this package hides the standard library's `cmd`, which `pdb` builds on, and with it pytest. So
it also offers what that module offers, taken from its file. An installed wheel has it as `kubelet_cmd`, which
hides nothing: modules below import each other relatively.
"""

import importlib.util
import sysconfig
from pathlib import Path

_spec = importlib.util.spec_from_file_location("_cmd", Path(sysconfig.get_path("stdlib"), "cmd.py"))
assert _spec is not None and _spec.loader is not None
_cmd = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cmd)

__all__ = ["IDENTCHARS", "PROMPT", "Cmd"]

IDENTCHARS = _cmd.IDENTCHARS
PROMPT = _cmd.PROMPT
Cmd = _cmd.Cmd
