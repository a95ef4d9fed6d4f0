"""Request the first client certificate of a node with the credentials of a bootstrap kubeconfig.

Go: pkg/kubelet/certificate/bootstrap
"""

from kubelet.certificate.bootstrap.bootstrap import load_client_cert, load_client_config

__all__ = ["load_client_cert", "load_client_config"]
