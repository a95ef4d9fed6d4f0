"""Convert image specs between the types of the kubelet and the runtime.

Go: pkg/kubelet/kuberuntime/convert.go
"""

from __future__ import annotations

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import features


def to_kube_container_image_spec(image: runtimeapi.Image) -> kubecontainer.ImageSpec:
    """Return the spec that identifies a listed image, with its annotations sorted by name."""
    annotations = [
        kubecontainer.Annotation(name, image.spec.annotations[name]) for name in sorted(image.spec.annotations)
    ]
    handler = ""
    if features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API):
        handler = image.spec.runtime_handler
    return kubecontainer.ImageSpec(image=image.id, annotations=annotations, runtime_handler=handler)


def to_runtime_api_image_spec(image_spec: kubecontainer.ImageSpec) -> runtimeapi.ImageSpec:
    """Convert the spec to the runtime's type."""
    spec = runtimeapi.ImageSpec(image=image_spec.image, annotations={a.name: a.value for a in image_spec.annotations})
    if features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API):
        spec.runtime_handler = image_spec.runtime_handler
    return spec
