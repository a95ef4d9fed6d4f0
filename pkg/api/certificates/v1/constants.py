"""Define the constants of the certificates.k8s.io API group.

Go: k8s.io/api/certificates/v1/types.go
"""

KUBE_API_SERVER_CLIENT_SIGNER_NAME = "kubernetes.io/kube-apiserver-client"
KUBE_API_SERVER_CLIENT_KUBELET_SIGNER_NAME = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING_SIGNER_NAME = "kubernetes.io/kubelet-serving"

CERTIFICATE_APPROVED = "Approved"
CERTIFICATE_DENIED = "Denied"
CERTIFICATE_FAILED = "Failed"

USAGE_DIGITAL_SIGNATURE = "digital signature"
USAGE_KEY_ENCIPHERMENT = "key encipherment"
USAGE_SERVER_AUTH = "server auth"
USAGE_CLIENT_AUTH = "client auth"
