"""Addresses of tool servers and of the runtime: which are taken, and when two are of one server."""

import ipaddress
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(url: str) -> str:
    """Return the scheme, host and port of an absolute http or https URL, spelt one way.

    Raises:
        ValueError: it is no such URL, or one that two parsers could read as two different hosts.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("a URL must be printable ASCII without spaces and backslashes")
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("a URL must begin with https:// (or http://) and a host")
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user name or password")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    try:
        port = parts.port
    except ValueError:
        # The parser's own text repeats the port, which may be a part of a password.
        raise ValueError("a URL's port must be a number up to 65535") from None
    return f"{parts.scheme}://{host}:{port or _DEFAULT_PORTS[parts.scheme]}"


def secure_url(url: str) -> str:
    """Return ``url`` if it is https, or http on this very machine.

    Raises:
        ValueError: it is neither.
    """
    if origin(url).startswith("http:") and not is_loopback(url):
        raise ValueError("a URL must be https, except on loopback")
    return url


def is_loopback(url: str) -> bool:
    """Return whether the host of ``url`` is this very machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
