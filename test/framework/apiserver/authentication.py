"""Authenticate users by client certificates or static, bootstrap and service account tokens, or as anonymous.

The module also serves the APIs for tokens: TokenRequest, TokenReview and SelfSubjectReview.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography import x509

from pkg import klog
from pkg.apimachinery.util.validation import field

from . import certificates, errors, tokens
from .interfaces import CREATE, Admission, Object, Request, Store, UserInfo

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
BOOTSTRAPPERS = "system:bootstrappers"

_BOOTSTRAP_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_BOOTSTRAP_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_BOOTSTRAP_TYPE = "bootstrap.kubernetes.io/token"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")

_EXTRA = "authentication.kubernetes.io"
_DEFAULT_SECONDS = 3600
_SHORTEST_SECONDS = 600
_LONGEST_SECONDS = 1 << 32
# A kubelet requests pod tokens with a lifetime of _WARN_SECONDS. Such a token really lives for _EXTENDED_SECONDS, so
# that a program that never reads its token again works for a year.
_WARN_SECONDS = 3607
_EXTENDED_SECONDS = 365 * 24 * 3600


@dataclass(frozen=True)
class TokenUser:
    """Describe the user of a token, and the requested audiences for which the token is valid."""

    user: UserInfo
    audiences: tuple[str, ...]


class Authenticator:
    """Try all methods of authentication in upstream's order. All methods are thread-safe."""

    def __init__(
        self,
        store: Callable[[], Store],
        signer: tokens.TokenSigner,
        static_tokens: Mapping[str, UserInfo] | None = None,
        now: tokens.Clock = time.time,
    ) -> None:
        """Create the authenticator.

        It calls `store` only later, because the server that creates the store needs it first.
        """
        self.signer = signer
        self.static_tokens = dict(static_tokens or {})
        self.api_audiences: tuple[str, ...] = (signer.issuer,)
        self._store = store
        self._now = now

    @property
    def store(self) -> Store:
        return self._store()

    def authenticate(self, request: Request) -> UserInfo | None:
        user = self._authenticate(request)
        return _impersonated(request, user) if "impersonate-user" in request.headers else user

    def _authenticate(self, request: Request) -> UserInfo | None:
        expired = False
        if request.peer_certificate is not None:
            user = self._certificate_user(request.peer_certificate)
            if user is not None:
                return user
            expired = True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return self.authenticate_token(token.strip(), self.api_audiences).user
        if expired:
            raise errors.unauthorized()
        return None

    def _certificate_user(self, der: bytes) -> UserInfo | None:
        """Return the user of a certificate, or None if the certificate is not valid now."""
        certificate = x509.load_der_x509_certificate(der)
        now = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
        name = certificates.common_name(certificate.subject)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc or not name:
            klog.v(2).info_s("Unable to authenticate the request", user=name, end=certificate.not_valid_after_utc)
            return None
        groups = tuple(certificates.organizations(certificate.subject))
        extra = {f"{_EXTRA}/credential-id": (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
        return authenticated(UserInfo(name, groups=groups, extra=extra))

    def authenticate_token(self, token: str, audiences: Collection[str]) -> TokenUser:
        """Return the user of a token. Raise ApiError (401) if the token is not valid."""
        for way in (self._static, self._service_account, self._bootstrap):
            try:
                found = way(token, audiences)
            except tokens.TokenError as err:
                klog.v(2).info_s("Unable to authenticate the request", err=str(err))
                raise errors.unauthorized() from err
            if found is not None:
                return replace(found, user=authenticated(found.user))
        raise errors.unauthorized()

    def _static(self, token: str, audiences: Collection[str]) -> TokenUser | None:
        for known, user in list(self.static_tokens.items()):
            if hmac.compare_digest(known.encode(), token.encode()):
                return TokenUser(user, self._of_api(audiences))
        return None

    def _bootstrap(self, token: str, audiences: Collection[str]) -> TokenUser | None:
        match = _BOOTSTRAP_TOKEN.fullmatch(token)
        if match is None:
            return None
        token_id, token_secret = match.groups()
        try:
            secret = self.store.get("secrets", f"bootstrap-token-{token_id}", "kube-system")
        except errors.ApiError:
            return None
        data = {key: _text(value) for key, value in (secret.get("data") or {}).items()}
        usable = (
            not secret["metadata"].get("deletionTimestamp")
            and secret.get("type") == _BOOTSTRAP_TYPE
            and hmac.compare_digest(data.get("token-secret", ""), token_secret)
            and data.get("token-id") == token_id
            and not self._has_expired(data.get("expiration", ""))
            and data.get("usage-bootstrap-authentication") == "true"
        )
        groups = _bootstrap_groups(data.get("auth-extra-groups", ""))
        if not usable or groups is None:
            return None
        return TokenUser(UserInfo(f"system:bootstrap:{token_id}", groups=groups), self._of_api(audiences))

    def _has_expired(self, expiration: str) -> bool:
        """Report whether a bootstrap token has expired. A time that cannot be parsed counts as expired."""
        if not expiration:
            return False
        try:
            end = datetime.datetime.fromisoformat(expiration)
            return end.timestamp() < self._now()
        except ValueError:
            return True

    def _service_account(self, token: str, audiences: Collection[str]) -> TokenUser | None:
        if not self.signer.issued(token):
            return None
        claims = self.signer.verify(token, audiences)
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        self._check_reference("serviceaccounts", "service account", account, namespace)
        for claim, resource in (("pod", "pods"), ("secret", "secrets")):
            if claim in private:
                self._check_reference(resource, claim, private[claim], namespace)
        if "node" in private and "pod" not in private:
            self._check_reference("nodes", "node", private["node"], "")
        user = UserInfo(
            claims["sub"],
            account["uid"],
            ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"),
            _extra_of_claims(claims),
        )
        return TokenUser(user, tuple(each for each in claims["aud"] if each in audiences))

    def _check_reference(self, resource: str, word: str, reference: Mapping[str, str], namespace: str) -> None:
        name = f"{namespace}/{reference['name']}"
        try:
            found = self.store.get(resource, reference["name"], namespace)
        except errors.ApiError as err:
            raise tokens.TokenError(f"{word} {name} not found: {err}") from err
        if found["metadata"]["uid"] != reference["uid"]:
            uids = f"UID ({found['metadata']['uid']}) does not match claim ({reference['uid']})"
            raise tokens.TokenError(f"{word} {uids}")

    def _of_api(self, audiences: Collection[str]) -> tuple[str, ...]:
        """Return the audiences of a token for the API server. Raise TokenError if the request wants none of them."""
        found = tuple(each for each in self.api_audiences if each in audiences)
        if not found:
            raise tokens.TokenError("the token is valid only for the API server")
        return found


def authenticated(user: UserInfo) -> UserInfo:
    """Add the user to system:authenticated, the group of all users who are not anonymous."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


def _impersonated(request: Request, user: UserInfo | None) -> UserInfo | None:
    """Return the user that an administrator wants to impersonate."""
    wanted = request.headers["impersonate-user"]
    if user is None or MASTERS not in user.groups:
        raise _may_not_impersonate(request, "system:anonymous" if user is None else user.name)
    groups = tuple(each.strip() for each in request.headers.get("impersonate-group", "").split(",") if each.strip())
    if not groups and (match := _SERVICE_ACCOUNT.fullmatch(wanted)):
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{match[1]}")
    if wanted == "system:anonymous":
        return UserInfo(wanted, groups=(*groups, UNAUTHENTICATED))
    return authenticated(UserInfo(wanted, request.headers.get("impersonate-uid", ""), groups))


def _may_not_impersonate(request: Request, name: str) -> errors.ApiError:
    verb = f"impersonate-on:user-info:{request.verb}"
    if not request.resource:
        return errors.forbidden("", "", "", f'User "{name}" cannot {verb} path "{request.path}"')
    resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    place = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    why = f'User "{name}" cannot {verb} resource "{resource}" in API group "{request.group}" {place}'
    return errors.forbidden(request.resource, request.group, request.name, why)


def _bootstrap_groups(extra: str) -> tuple[str, ...] | None:
    """Return the groups of a bootstrap token, or None if one of them has a forbidden name."""
    names = sorted({each for each in extra.split(",") if each})
    if not all(_BOOTSTRAP_GROUP.fullmatch(name) for name in names):
        return None
    return (BOOTSTRAPPERS, *names)


def _extra_of_claims(claims: tokens.Claims) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {f"{_EXTRA}/credential-id": (f"JTI={claims['jti']}",)}
    for claim in ("node", "pod"):
        if reference := claims["kubernetes.io"].get(claim):
            extra[f"{_EXTRA}/{claim}-name"] = (reference["name"],)
            if reference.get("uid"):
                extra[f"{_EXTRA}/{claim}-uid"] = (reference["uid"],)
    return extra


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode()
    except ValueError:
        return ""


class TokenRequests:
    """Serve serviceaccounts/token: sign a token for a service account, bound to an object if the request names one.

    `shortest` replaces the lifetime, in seconds, of tokens that were requested with the minimum of ten minutes; 0 keeps
    it.
    """

    def __init__(
        self, authenticator: Authenticator, admission: Admission, now: tokens.Clock = time.time, shortest: int = 0
    ) -> None:
        self._authenticator = authenticator
        self._admission = admission
        self._now = now
        self._shortest = shortest

    def __call__(self, request: Request, body: Object) -> Object:
        store = self._authenticator.store
        metadata = body.setdefault("metadata", {})
        if metadata.get("namespace", request.namespace) != request.namespace:
            why = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(why)
        # Admission runs before the defaulting, because it distinguishes a missing audience from that of the API server.
        self._admission.admit(request, CREATE, body, None)
        if metadata.get("name", request.name) != request.name:
            message = "must match the service account name if specified"
            fault = field.invalid(field.Path("metadata").child("name"), metadata["name"], message)
            raise errors.invalid("TokenRequest", "authentication.k8s.io", request.name, [fault])
        account = store.get("serviceaccounts", request.name, request.namespace)
        uid = account["metadata"]["uid"]
        if metadata.get("uid", uid) != uid:
            asked = f"the UID in the token request ({metadata['uid']})"
            why = f"{asked} does not match the UID of the service account ({uid})"
            raise errors.conflict("TokenRequest", "authentication.k8s.io", request.name, why)
        spec = body.setdefault("spec", {})
        _set_defaults(spec, self._authenticator.api_audiences)
        _validate(spec)
        bound = self._bound(request, spec.get("boundObjectRef"))
        if self._shortest and spec["expirationSeconds"] == _SHORTEST_SECONDS:
            spec["expirationSeconds"] = self._shortest
        now = self._now()
        metadata.update(name=request.name, namespace=request.namespace, uid=uid, creationTimestamp=_timestamp(now))
        body["status"] = self._status(account, spec, bound, now)
        return body

    def _status(self, account: Object, spec: Object, bound: Mapping[str, Object], now: float) -> Object:
        signer = self._authenticator.signer
        seconds = spec["expirationSeconds"]
        extended = "pod" in bound and seconds == _WARN_SECONDS and self._all_of_api(spec["audiences"])
        lifetime = _EXTENDED_SECONDS if extended else seconds
        claims = tokens.claims_for(signer.issuer, account, spec["audiences"], lifetime, bound, now)
        if extended:
            claims["kubernetes.io"]["warnafter"] = int(now) + seconds
        return {"token": signer.sign(claims), "expirationTimestamp": _timestamp(now + seconds)}

    def _all_of_api(self, audiences: Collection[str]) -> bool:
        return set(audiences) <= set(self._authenticator.api_audiences)

    def _bound(self, request: Request, reference: Mapping[str, Any] | None) -> dict[str, Object]:
        """Return the objects that the token will be bound to, by the names of their claims."""
        if reference is None:
            return {}
        store = self._authenticator.store
        kind, name = reference.get("kind", ""), reference.get("name", "")
        resource = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}.get(kind)
        if resource is None or reference.get("apiVersion", "") != "v1":
            group, _, version = reference.get("apiVersion", "").rpartition("/")
            raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        found = store.get(resource, name, "" if kind == "Node" else request.namespace)
        if kind == "Pod" and (found.get("spec") or {}).get("serviceAccountName") != request.name:
            why = "cannot bind token for serviceaccount"
            raise errors.bad_request(f'{why} "{request.name}" to pod running with different serviceaccount name.')
        if reference.get("uid") and reference["uid"] != found["metadata"]["uid"]:
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(kind, "", name, why)
        bound = {kind.lower(): found}
        if kind == "Pod" and (node := found["spec"].get("nodeName")):
            bound["node"] = self._node(node)
        return bound

    def _node(self, name: str) -> Object:
        try:
            return self._authenticator.store.get("nodes", name)
        except errors.ApiError:
            return {"metadata": {"name": name}}


def _set_defaults(spec: Object, audiences: Collection[str]) -> None:
    if not spec.get("audiences"):
        spec["audiences"] = list(audiences)
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = _DEFAULT_SECONDS


def _validate(spec: Object) -> None:
    path, seconds = field.Path("spec").child("expirationSeconds"), spec["expirationSeconds"]
    if seconds < _SHORTEST_SECONDS:
        message = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST_SECONDS:
        message = "may not specify a duration larger than 2^32 seconds"
    else:
        return
    raise errors.invalid("TokenRequest", "authentication.k8s.io", "", [field.invalid(path, seconds, message)])


class TokenReviews:
    """Serve tokenreviews, which report the user of a token."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def __call__(self, request: Request, body: Object) -> Object:
        spec = body.get("spec") or {}
        if not spec.get("token"):
            raise errors.bad_request("token is required for TokenReview in authentication")
        wanted = spec.get("audiences") or list(self._authenticator.api_audiences)
        try:
            found = self._authenticator.authenticate_token(spec["token"], wanted)
        except errors.ApiError as err:
            why = err.__cause__ if err.__cause__ is not None else "invalid bearer token"
            body["status"] = {"user": {}, "error": str(why)}
            return body
        body["status"] = {
            "authenticated": True,
            "user": user_object(found.user),
            "audiences": list(found.audiences),
        }
        return body


def self_subject_reviews(request: Request, body: Object) -> Object:
    """Serve selfsubjectreviews, which `kubectl auth whoami` creates."""
    body["status"] = {"userInfo": user_object(request.user)}
    return body


def user_object(user: UserInfo) -> Object:
    """Return a user in the form that API objects have."""
    found: Object = {"username": user.name}
    if user.uid:
        found["uid"] = user.uid
    if user.groups:
        found["groups"] = list(user.groups)
    if user.extra:
        found["extra"] = {key: list(values) for key, values in user.extra.items()}
    return found


def _timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
