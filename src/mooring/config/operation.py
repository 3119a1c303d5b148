"""Settings for running a gateway as a service: TLS, proxies, logs, metrics."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Literal, cast
from urllib.parse import urlsplit

from mooring.config.validate import (
    Settings,
    flag,
    kind,
    list_of_text,
    one_of,
    optional,
    seconds,
    section,
    setting,
    shown,
    some_text,
    whole,
    within,
)

__all__ = [
    "AccessLogSettings",
    "ClusterSettings",
    "ForwardedSettings",
    "GatewayTls",
    "LogSettings",
    "MetricsSettings",
]

LOG_LEVELS = ("debug", "info", "warning", "error")
LogLevel = Literal["debug", "info", "warning", "error"]


class GatewayTls(Settings):
    """Certificate of the gateway, and the authority of its clients. Each is the path of a PEM file, or one
    reference whose value is the PEM text, such as `${file:/run/secrets/tls.crt}`."""

    cert: str = setting(some_text)
    """The certificate chain; may hold the key as well."""
    key: str | None = setting(optional(some_text), default=None)
    """The private key, if it is not in the certificate."""
    key_password: str | None = setting(optional(some_text), default=None)
    """One reference, such as `${TLS_PASSWORD}`."""
    client_ca: str | None = setting(optional(some_text), default=None)
    """Authorities that sign client certificates; None: clients are asked for none."""
    client: Literal["optional", "required"] = setting(one_of("optional", "required"), default="optional")
    """Whether a client without a certificate may connect; it then needs a token."""
    client_scopes: tuple[str, ...] = setting(list_of_text, default=())
    """Scopes of the clients with a certificate."""

    def _check(self) -> None:
        from mooring.config.references import is_reference

        if self.key_password is not None and not is_reference(self.key_password):
            raise ValueError("'key_password' must be one reference, such as ${TLS_PASSWORD}")
        if self.client_ca is None and (self.client == "required" or self.client_scopes):
            raise ValueError("'client' and 'client_scopes' need 'client_ca'")

    def __repr__(self) -> str:
        return f"GatewayTls(cert=…, client={self.client!r})"


def _networks(value: object) -> tuple[str, ...]:
    known = list_of_text(value)
    for text in known:
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise ValueError(
                f"{shown(text)} is neither an address nor a network, such as 10.0.0.0/8"
            ) from None
    return known


class ForwardedSettings(Settings):
    """Proxies in front of the gateway. Their forwarding headers are used; those of other peers are
    ignored."""

    proxies: tuple[str, ...] = setting(_networks)
    """Addresses or networks of the proxies."""
    header: Literal["x-forwarded", "forwarded"] = setting(
        one_of("x-forwarded", "forwarded"), default="x-forwarded"
    )
    """Which headers the proxies write: `X-Forwarded-For` and so on, or `Forwarded` (RFC 7239)."""


class AccessLogSettings(Settings):
    """One line for each request."""

    path: str = setting(some_text, default="-")
    """A file, or `-` for standard error."""
    format: Literal["text", "json"] = setting(one_of("text", "json"), default="json")
    """Form of the lines."""


def read_access_log(value: object) -> AccessLogSettings | None:
    """Return the settings; a text is the path, `true` means standard error."""
    word = str(value).lower() if isinstance(value, bool | str) else ""  # `true` of YAML is text
    if value is None or word in ("false", "no", "off"):
        return None
    if word in ("true", "yes", "on"):
        return AccessLogSettings()
    return AccessLogSettings(path=value) if isinstance(value, str) else section(AccessLogSettings)(value)


def _levels(value: object) -> tuple[tuple[str, LogLevel], ...]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of loggers to levels, not {kind(value)}")
    read = one_of(*LOG_LEVELS)
    return tuple((str(name), read(level)) for name, level in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


class LogSettings(Settings):
    """The application log, on standard error."""

    format: Literal["text", "json"] = setting(one_of("text", "json"), default="text")
    """Form of the lines."""
    level: LogLevel = setting(one_of(*LOG_LEVELS), default="info")
    """Least level that is written."""
    levels: tuple[tuple[str, LogLevel], ...] = setting(_levels, default=())
    """Levels of single loggers, such as `mooring.connection`."""


class MetricsSettings(Settings):
    """What `/metrics` reports beyond the usual."""

    max_tools: int = setting(within(whole, least=0, most=10_000), default=200)
    """Tools with a series of their own; calls of further ones count as `other`."""
    principals: bool = setting(flag, default=False)
    """Whether requests are also counted by principal."""
    max_principals: int = setting(within(whole, least=1, most=10_000), default=200)
    """Principals with a series of their own; further ones count as `other`."""


def _engine_urls(value: object) -> tuple[str, ...]:
    known = (some_text(value),) if isinstance(value, str) else list_of_text(value)
    for url in known:
        if "@" in url:  # first: the other message shows the address
            raise ValueError(
                "must not hold credentials; use 'user' and 'password', or 'token', with references"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise ValueError(
                f"must be the address of a NATS server, such as nats://10.0.0.5:4222, not {shown(url)}"
            )
    if not known:
        raise ValueError("must name at least one server, such as nats://10.0.0.5:4222")
    return known


def _cluster_name(value: object) -> str:
    name = some_text(value)
    if len(name) > 32 or not name.replace("-", "").isalnum() or not name.isascii():
        raise ValueError(f"{shown(name)} is no name of a cluster; use up to 32 letters, digits and '-'")
    return name


def _node_url(value: object) -> str:
    parts = urlsplit(some_text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError("must be a URL such as https://a.example:8080")
    return f"{parts.scheme}://{parts.netloc}"


class EngineTls(Settings):
    """Certificates for the connection to the engine; each is the path of a PEM file."""

    ca: str | None = setting(optional(some_text), default=None)
    """Authorities that sign the certificate of the engine. Default: those of the system."""
    cert: str | None = setting(optional(some_text), default=None)
    """Certificate of this node."""
    key: str | None = setting(optional(some_text), default=None)
    """Its private key, if it is not in the certificate."""


_SECRETS = ("password", "token", "nkey")


class ClusterSettings(Settings):
    """The engine of a cluster: a NATS server with JetStream."""

    url: tuple[str, ...] = setting(_engine_urls)
    """Address of the server, such as `nats://10.0.0.5:4222`, or a list of them; `tls://` requires TLS."""
    name: str = setting(_cluster_name, default="mooring")
    """Name of the cluster. Clusters with different names can use one engine."""
    address: str | None = setting(optional(_node_url), default=None)
    """URL at which the other nodes reach this one; `--address` replaces it. Default: where it listens."""
    ttl: float = setting(within(seconds, least=2, most=3600), default=30.0)
    """Seconds after which another node takes over from a node that does not renew its lease."""
    replicas: int = setting(within(whole, least=1, most=5), default=1)
    """Servers that keep each key; 3 for an engine of three servers."""
    exact: bool = setting(flag, default=False)
    """Whether `gateway.rate` is counted in the engine, once for all nodes. Each request then waits for it.
    False: each node has its share."""
    user: str | None = setting(optional(some_text), default=None)
    """Name of this node's user at the engine."""
    password: str | None = setting(optional(some_text), default=None)
    """One reference, such as `${NATS_PASSWORD}`."""
    token: str | None = setting(optional(some_text), default=None)
    """One reference, such as `${NATS_TOKEN}`."""
    nkey: str | None = setting(optional(some_text), default=None)
    """One reference to the seed of an nkey, such as `${NATS_NKEY}`. Needs the package `nkeys`."""
    credentials: str | None = setting(optional(some_text), default=None)
    """Path of a credentials file (`.creds`). Needs the package `nkeys`."""
    tls: EngineTls | None = setting(optional(section(EngineTls)), default=None)
    """Certificates for the connection to the engine."""

    def _check(self) -> None:
        from mooring.config.references import is_reference

        for name in _SECRETS:
            value = cast("str | None", getattr(self, name))
            if value is not None and not is_reference(value):
                raise ValueError(f"'{name}' must be one reference, such as ${{NATS_{name.upper()}}}")
        if (self.user is None) != (self.password is None):
            raise ValueError("'user' and 'password' go together")


def read_cluster(value: object) -> ClusterSettings | None:
    """Return the settings; a text is the address of the engine."""
    if value is None:
        return None
    return ClusterSettings(url=(value,)) if isinstance(value, str) else section(ClusterSettings)(value)
