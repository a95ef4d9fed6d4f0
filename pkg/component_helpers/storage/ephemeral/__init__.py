"""Handle generic ephemeral volumes, whose claims are created for one pod and deleted with it.

Go: k8s.io/component-helpers/storage/ephemeral
"""

from pkg.component_helpers.storage.ephemeral.ephemeral import volume_claim_name, volume_is_for_pod

__all__ = ["volume_claim_name", "volume_is_for_pod"]
