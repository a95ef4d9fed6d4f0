"""Find volumes whose in-tree plugin a CSI driver has replaced, and translate them.

The migration of every translatable plugin is complete in 1.36, so this module checks no feature gates.

Go: pkg/volume/csimigration/plugin_manager.go
"""

from __future__ import annotations

from pkg import csi_translation_lib
from pkg.volume.plugins import Spec


def is_migratable(spec: Spec) -> bool:
    """Report whether a CSI driver replaces the plugin of the volume."""
    return bool(csi_translation_lib.get_in_tree_plugin_name_from_spec(spec.persistent_volume, spec.volume))


def translate_in_tree_spec_to_csi(spec: Spec, pod_namespace: str) -> Spec:
    """Return the volume as its CSI driver needs it. Raise ValueError."""
    try:
        if spec.persistent_volume is not None:
            pv = csi_translation_lib.translate_in_tree_pv_to_csi(spec.persistent_volume)
        elif spec.volume is not None:
            pv = csi_translation_lib.translate_in_tree_inline_volume_to_csi(spec.volume, pod_namespace)
        else:
            raise ValueError("not a valid volume spec")
    except ValueError as err:
        raise ValueError(f"failed to translate in-tree pv to CSI: {err}") from err
    inline = spec.persistent_volume is None
    return Spec(
        persistent_volume=pv,
        read_only=spec.read_only,
        migrated=True,
        inline_volume_spec_for_csi_migration=inline,
    )
