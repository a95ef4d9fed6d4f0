from collections.abc import Iterator

import grpc

from kubelet.apis.podresources.v1 import api_pb2

class PodResourcesListerStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    List: grpc.UnaryUnaryMultiCallable[api_pb2.ListPodResourcesRequest, api_pb2.ListPodResourcesResponse]
    GetAllocatableResources: grpc.UnaryUnaryMultiCallable[api_pb2.AllocatableResourcesRequest, api_pb2.AllocatableResourcesResponse]
    Get: grpc.UnaryUnaryMultiCallable[api_pb2.GetPodResourcesRequest, api_pb2.GetPodResourcesResponse]

class PodResourcesListerServicer:
    def List(self, request: api_pb2.ListPodResourcesRequest, context: grpc.ServicerContext) -> api_pb2.ListPodResourcesResponse: ...
    def GetAllocatableResources(self, request: api_pb2.AllocatableResourcesRequest, context: grpc.ServicerContext) -> api_pb2.AllocatableResourcesResponse: ...
    def Get(self, request: api_pb2.GetPodResourcesRequest, context: grpc.ServicerContext) -> api_pb2.GetPodResourcesResponse: ...

def add_PodResourcesListerServicer_to_server(
    servicer: PodResourcesListerServicer, server: grpc.Server
) -> None: ...
