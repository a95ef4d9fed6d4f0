from collections.abc import Iterator

import grpc

from kubelet.apis.pluginregistration.v1 import api_pb2

class RegistrationStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    GetInfo: grpc.UnaryUnaryMultiCallable[api_pb2.InfoRequest, api_pb2.PluginInfo]
    NotifyRegistrationStatus: grpc.UnaryUnaryMultiCallable[api_pb2.RegistrationStatus, api_pb2.RegistrationStatusResponse]

class RegistrationServicer:
    def GetInfo(self, request: api_pb2.InfoRequest, context: grpc.ServicerContext) -> api_pb2.PluginInfo: ...
    def NotifyRegistrationStatus(self, request: api_pb2.RegistrationStatus, context: grpc.ServicerContext) -> api_pb2.RegistrationStatusResponse: ...

def add_RegistrationServicer_to_server(
    servicer: RegistrationServicer, server: grpc.Server
) -> None: ...
