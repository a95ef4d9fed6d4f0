"""Provide the programs: `kubelet`, the node agent, and `kubemark`, the same agent on a fake container runtime.

In a checkout this package hides the standard library's module `cmd`, which `pdb` and therefore pytest need. So this
package also exports that module's names, loaded from its file. In an installed wheel this package is called
`kubelet_cmd` and hides nothing. That is why the modules below use relative imports.
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
