"""Connect to a kubelet's pod resources API.

Go: pkg/kubelet/apis/podresources/client.go
"""

from __future__ import annotations

import grpc

from kubelet.apis.podresources.v1 import api_pb2_grpc as v1
from kubelet.apis.podresources.v1alpha1 import api_pb2_grpc as v1alpha1
from kubelet.cri.remote import util
from pkg.util import grpcconn


def get_v1_client(
    socket: str, connection_timeout: float, max_msg_size: int
) -> tuple[v1.PodResourcesListerStub, grpc.Channel]:
    """Return a client and its connection, which the caller closes.

    Raise ConnectionError, or ValueError if the address is not a unix socket.
    """
    channel = _dial(socket, connection_timeout, max_msg_size)
    return v1.PodResourcesListerStub(channel), channel


def get_v1alpha1_client(
    socket: str, connection_timeout: float, max_msg_size: int
) -> tuple[v1alpha1.PodResourcesListerStub, grpc.Channel]:
    """Return a client of version v1alpha1, like get_v1_client."""
    channel = _dial(socket, connection_timeout, max_msg_size)
    return v1alpha1.PodResourcesListerStub(channel), channel


def _dial(socket: str, connection_timeout: float, max_msg_size: int) -> grpc.Channel:
    options = [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", max_msg_size)]
    channel = grpc.insecure_channel(f"unix:{util.get_address(socket)}", options)
    if not grpcconn.wait_until_ready(channel, connection_timeout):
        channel.close()
        raise ConnectionError(f"error dialing socket {socket}: no answer within {connection_timeout:g} s")
    return channel
