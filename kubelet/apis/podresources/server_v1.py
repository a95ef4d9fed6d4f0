"""Serve version 1 of the pod resources API.

Go: pkg/kubelet/apis/podresources/server_v1.go
"""

from __future__ import annotations

import itertools

import grpc

from kubelet import metrics
from kubelet.apis.podresources.types import PodResourcesProviders
from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
from kubelet.apis.podresources.v1 import api_pb2_grpc
from pkg import features, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil

_VERSION = "v1"


class V1PodResourcesServer(api_pb2_grpc.PodResourcesListerServicer):
    """Serve requests. All methods are thread-safe."""

    def __init__(self, providers: PodResourcesProviders) -> None:
        self._providers = providers
        self._use_active_pods = features.feature_gate.enabled(features.KUBELET_POD_RESOURCES_LIST_USE_ACTIVE_PODS)
        klog.info_s("podresources", method="list", useActivePods=self._use_active_pods)

    def List(
        self, request: podresourcesapi.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> podresourcesapi.ListPodResourcesResponse:
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL_COUNT.labels(_VERSION).inc()
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_LIST_COUNT.labels(_VERSION).inc()
        with metrics.POD_RESOURCES_ENDPOINT_ERRORS_LIST_COUNT.labels(_VERSION).count_exceptions():
            pods = self._providers.pods
            listed = pods.get_active_pods() if self._use_active_pods else pods.get_pods()
            self._providers.devices.update_allocated_devices()
            return podresourcesapi.ListPodResourcesResponse(pod_resources=map(self._pod_resources, listed))

    def GetAllocatableResources(
        self, request: podresourcesapi.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> podresourcesapi.AllocatableResourcesResponse:
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL_COUNT.labels(_VERSION).inc()
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_GET_ALLOCATABLE_COUNT.labels(_VERSION).inc()
        with metrics.POD_RESOURCES_ENDPOINT_ERRORS_GET_ALLOCATABLE_COUNT.labels(_VERSION).count_exceptions():
            return podresourcesapi.AllocatableResourcesResponse(
                devices=self._providers.devices.get_allocatable_devices(),
                cpu_ids=self._providers.cpus.get_allocatable_cpus(),
                memory=self._providers.memory.get_allocatable_memory(),
            )

    def Get(
        self, request: podresourcesapi.GetPodResourcesRequest, context: grpc.ServicerContext
    ) -> podresourcesapi.GetPodResourcesResponse:
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_TOTAL_COUNT.labels(_VERSION).inc()
        metrics.POD_RESOURCES_ENDPOINT_REQUESTS_GET_COUNT.labels(_VERSION).inc()
        with metrics.POD_RESOURCES_ENDPOINT_ERRORS_GET_COUNT.labels(_VERSION).count_exceptions():
            pod = self._providers.pods.get_pod_by_name(request.pod_namespace, request.pod_name)
            if pod is None:
                message = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
                context.abort(grpc.StatusCode.UNKNOWN, message)
            return podresourcesapi.GetPodResourcesResponse(pod_resources=self._pod_resources(pod))

    def _pod_resources(self, pod: v1.Pod) -> podresourcesapi.PodResources:
        """Return the resources of containers that may run as long as the pod, sidecars first."""
        sidecars = filter(podutil.is_restartable_init_container, pod.spec.init_containers)
        return podresourcesapi.PodResources(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            containers=[
                self._get_container_resources(pod, container)
                for container in itertools.chain(sidecars, pod.spec.containers)
            ],
        )

    def _get_container_resources(self, pod: v1.Pod, container: v1.Container) -> podresourcesapi.ContainerResources:
        providers, uid = self._providers, pod.metadata.uid
        return podresourcesapi.ContainerResources(
            name=container.name,
            devices=providers.devices.get_devices(uid, container.name),
            cpu_ids=providers.cpus.get_cpus(uid, container.name),
            memory=providers.memory.get_memory(uid, container.name),
            dynamic_resources=providers.dynamic_resources.get_dynamic_resources(pod, container),
        )
