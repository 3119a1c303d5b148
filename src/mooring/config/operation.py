"""Settings for running a gateway as a service: TLS, proxies, logs, metrics."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Literal

from mooring.config.validate import (
    Settings,
    flag,
    kind,
    list_of_text,
    one_of,
    optional,
    section,
    setting,
    shown,
    some_text,
    whole,
    within,
)

__all__ = ["AccessLogSettings", "ForwardedSettings", "GatewayTls", "LogSettings", "MetricsSettings"]

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
    if value is None or value is False:
        return None
    if value is True:
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
