"""Serve the first version of the pod resources API, which reports only devices.

Go: pkg/kubelet/apis/podresources/server_v1alpha1.go
"""

from __future__ import annotations

import grpc

from kubelet import metrics
from kubelet.apis.podresources.types import PodResourcesProviders
from kubelet.apis.podresources.v1alpha1 import api_pb2 as v1alpha1
from kubelet.apis.podresources.v1alpha1 import api_pb2_grpc
from pkg.api.core import v1


class V1alpha1PodResourcesServer(api_pb2_grpc.PodResourcesListerServicer):
    """Serve requests. All methods are thread-safe."""

    def __init__(self, providers: PodResourcesProviders) -> None:
        self._providers = providers

    def List(
        self, request: v1alpha1.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> v1alpha1.ListPodResourcesResponse:
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL_COUNT.labels("v1alpha1").inc()
        pods = self._providers.pods.get_pods()
        self._providers.devices.update_allocated_devices()
        return v1alpha1.ListPodResourcesResponse(pod_resources=map(self._pod_resources, pods))

    def _pod_resources(self, pod: v1.Pod) -> v1alpha1.PodResources:
        return v1alpha1.PodResources(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            containers=[
                v1alpha1.ContainerResources(name=container.name, devices=self._devices(pod, container))
                for container in pod.spec.containers
            ],
        )

    def _devices(self, pod: v1.Pod, container: v1.Container) -> list[v1alpha1.ContainerDevices]:
        return [
            v1alpha1.ContainerDevices(resource_name=devices.resource_name, device_ids=devices.device_ids)
            for devices in self._providers.devices.get_devices(pod.metadata.uid, container.name)
        ]
