"""Make a rest.Config from a kubeconfig.

Go: k8s.io/client-go/tools/clientcmd/client_config.go
"""

from __future__ import annotations

import os
from pathlib import Path

from pkg import klog
from pkg.client_go import rest
from pkg.client_go.tools.clientcmd import api, loader, validation

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def build_config_from_flags(master_url: str, kubeconfig_path: str) -> rest.Config:
    """Return a config for the kubeconfig's server and user; master_url replaces the server.

    Without both arguments, return the config of a pod in its own cluster. Raise OSError or ValueError that names the
    file and the field.
    """
    if not master_url and not kubeconfig_path:
        klog.warning_s(
            "Neither --kubeconfig nor --master was specified.  Using the inClusterConfig.  This might not work."
        )
        return in_cluster_config()
    config = api.Config()
    if kubeconfig_path:
        config = loader.load_from_file(kubeconfig_path)
        loader.resolve_local_paths(config)
    return client_config(config, master_url)


def client_config(config: api.Config, master_url: str = "", context_name: str = "") -> rest.Config:
    """Return the rest.Config of a context ("" means the current one).

    Raise validation.ConfigurationInvalidError if the context is unusable.
    """
    if config.is_empty() and master_url:
        return rest.Config(host=master_url)
    validation.confirm_usable(config, context_name)
    context = config.contexts[context_name or config.current_context]
    cluster, user = config.clusters[context.cluster], config.auth_infos.get(context.auth_info, api.AuthInfo())
    return rest.Config(
        host=master_url or cluster.server,
        proxy_url=cluster.proxy_url,
        disable_compression=cluster.disable_compression,
        tls_client_config=rest.TLSClientConfig(
            insecure=cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            ca_file=cluster.certificate_authority,
            ca_data=cluster.certificate_authority_data,
            cert_file=user.client_certificate,
            cert_data=user.client_certificate_data,
            key_file=user.client_key,
            key_data=user.client_key_data,
        ),
        bearer_token=user.token,
        bearer_token_file=user.token_file,
        username=user.username,
        password=user.password,
        impersonate=rest.ImpersonationConfig(
            user_name=user.impersonate,
            uid=user.impersonate_uid,
            groups=list(user.impersonate_groups),
            extra=dict(user.impersonate_user_extra),
        ),
        exec_provider=user.exec,
    )


def in_cluster_config() -> rest.Config:
    """Return the config of a pod for its own cluster; raise ValueError outside of a pod.

    Go: k8s.io/client-go/rest/config.go
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ValueError(
            "unable to load in-cluster configuration, "
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
        )
    host = f"[{host}]" if ":" in host else host
    return rest.Config(
        host=f"https://{host}:{port}",
        bearer_token_file=str(_SERVICE_ACCOUNT / "token"),
        tls_client_config=rest.TLSClientConfig(ca_file=str(_SERVICE_ACCOUNT / "ca.crt")),
    )
