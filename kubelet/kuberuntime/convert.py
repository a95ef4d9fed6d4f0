"""Image specs of the kubelet and of the runtime, one to the other.

Go: pkg/kubelet/kuberuntime/convert.go
"""

from __future__ import annotations

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import features


def to_kube_container_image_spec(image: runtimeapi.Image) -> kubecontainer.ImageSpec:
    """The spec to ask for a listed image by; annotations are sorted by name."""
    annotations = [
        kubecontainer.Annotation(name, image.spec.annotations[name]) for name in sorted(image.spec.annotations)
    ]
    handler = ""
    if features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API):
        handler = image.spec.runtime_handler
    return kubecontainer.ImageSpec(image=image.id, annotations=annotations, runtime_handler=handler)


def to_runtime_api_image_spec(image_spec: kubecontainer.ImageSpec) -> runtimeapi.ImageSpec:
    """The spec as the runtime takes it."""
    spec = runtimeapi.ImageSpec(image=image_spec.image, annotations={a.name: a.value for a in image_spec.annotations})
    if features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API):
        spec.runtime_handler = image_spec.runtime_handler
    return spec
