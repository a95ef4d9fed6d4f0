"""Build the authentication and authorization of the kubelet's server from the configuration.

Go: cmd/kubelet/app/auth.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubelet.apis import config as kubeletconfig
from kubelet.server import auth
from pkg import golang
from pkg.apimachinery.util import wait
from pkg.apiserver.authentication import authenticator, authenticatorfactory
from pkg.apiserver.authorization import authorizer, authorizerfactory
from pkg.apiserver.server import dynamiccertificates

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# A Run function starts the thread that watches the certificate files. The thread ends with the context.
Run = Callable[[golang.Context], None]


def build_auth(
    node_name: str, client: kubernetes.Interface | None, config: kubeletconfig.KubeletConfiguration
) -> tuple[auth.KubeletAuth, Run]:
    """Return the server's authentication and authorization, and the function that starts their file watcher.

    Raise OSError or ValueError, with the name of the file or the field, if the configuration cannot be used.
    """
    request_authenticator, run, client_ca_provider = build_authn(
        client.authentication_v1 if client is not None else None, config.authentication
    )
    request_authorizer = build_authz(client.authorization_v1 if client is not None else None, config.authorization)
    attributes_getter = auth.NodeAuthorizerAttributesGetter(node_name)
    return auth.KubeletAuth(request_authenticator, attributes_getter, request_authorizer, client_ca_provider), run


def build_authn(
    client: kubernetes.AuthenticationV1 | None, authn: kubeletconfig.KubeletAuthentication
) -> tuple[authenticator.Request, Run, dynamiccertificates.CAContentProvider]:
    client_ca = authn.x509.client_ca_file
    content = dynamiccertificates.DynamicFileCAContent("client-ca-bundle", client_ca) if client_ca else None
    if authn.webhook.enabled and client is None:
        raise ValueError("no client provided, cannot use webhook authentication")
    request_authenticator = authenticatorfactory.DelegatingAuthenticatorConfig(
        webhook_retry_backoff=default_auth_webhook_retry_backoff(),
        anonymous=authn.anonymous.enabled,
        token_access_review_client=client if authn.webhook.enabled else None,
        cache_ttl=authn.webhook.cache_ttl,
        verify_options=content.verify_options if content is not None else None,
    ).new()

    def run(ctx: golang.Context) -> None:
        if content is not None:
            golang.go(content.run, ctx, name="client-ca-bundle")

    return request_authenticator, run, content or dynamiccertificates.NoCAContent()


def build_authz(
    client: kubernetes.AuthorizationV1 | None, authz: kubeletconfig.KubeletAuthorization
) -> authorizer.Authorizer:
    match authz.mode:
        case kubeletconfig.KUBELET_AUTHORIZATION_MODE_ALWAYS_ALLOW:
            return authorizerfactory.AlwaysAllowAuthorizer()
        case kubeletconfig.KUBELET_AUTHORIZATION_MODE_WEBHOOK:
            if client is None:
                raise ValueError("no client provided, cannot use webhook authorization")
            return authorizerfactory.DelegatingAuthorizerConfig(
                subject_access_review_client=client,
                allow_cache_ttl=authz.webhook.cache_authorized_ttl,
                deny_cache_ttl=authz.webhook.cache_unauthorized_ttl,
                webhook_retry_backoff=default_auth_webhook_retry_backoff(),
            ).new()
        case "":
            raise ValueError("no authorization mode specified")
        case unknown:
            raise ValueError(f"unknown authorization mode {unknown}")


def default_auth_webhook_retry_backoff() -> wait.Backoff:
    """Return the backoff between attempts to call a webhook.

    Go: k8s.io/apiserver/pkg/server/options/authentication.go (DefaultAuthWebhookRetryBackoff)
    """
    return wait.Backoff(duration=0.5, factor=1.5, jitter=0.2, steps=5)
