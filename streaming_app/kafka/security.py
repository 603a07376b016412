"""Kafka client properties (`security.protocol`, `sasl.*`, `ssl.*`) as settings of kafka-python 3.

So one --command-config serves both Kafka's Java client, which Spark uses, and kafka-python. If kafka-python does not
support a property, it is rejected with a message that says what to do. No property that secures the connection is
ignored.
"""

import base64
import binascii
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import urllib3
from kafka.net.sasl.oauth import AbstractTokenProvider

from streaming_app.errors import reason_of
from streaming_app.kafka import keystores
from streaming_app.kafka.properties import Properties, SecurityError, jaas_options, resolve_config_providers

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TLS_1_3_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_PASSWORD_MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OAUTH = "OAUTHBEARER"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_HANDLER = "sasl.login.callback.handler.class"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_REFRESH_WINDOW_FACTOR = 0.8  # of a token's lifetime: Kafka's default for sasl.login.refresh.window.factor
_DEFAULT_LIFETIME_SECONDS = 60.0  # for a token without the claim `exp`
_TIMEOUT_SECONDS = 10.0


def security_settings(properties: Properties) -> dict[str, Any]:
    """Return kafka-python's settings of security. Raises SecurityError for what it, or Kafka's client, refuses."""
    properties = resolve_config_providers(properties)
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SecurityError(f"security.protocol {protocol}: must be one of {', '.join(_PROTOCOLS)}")
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        settings |= _sasl_settings(properties)
    if protocol.endswith("SSL"):
        settings |= {"ssl_context": _ssl_context(properties)}
    return settings


def _sasl_settings(properties: Properties) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()  # Kafka's default
    if mechanism == _OAUTH:
        provider = _create_token_provider(properties)
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    if mechanism not in _PASSWORD_MECHANISMS:
        raise SecurityError(
            f"sasl.mechanism {mechanism} is supported only by Kafka's Java client, with which the job reads; here use "
            f"{', '.join((*_PASSWORD_MECHANISMS, _OAUTH))}, or TLS client certificates (security.protocol=SSL)"
        )
    options = jaas_options(properties, _PASSWORD_MECHANISMS[mechanism], "username", "password")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _ssl_context(properties: Properties) -> ssl.SSLContext:
    certificates = keystores.load_trust_store(properties)
    context = _context_trusting_only(certificates) if certificates else ssl.create_default_context()
    if not properties.get("ssl.endpoint.identification.algorithm", "https").strip():
        context.check_hostname = False
    enabled = _names(properties, "ssl.enabled.protocols") or list(_VERSIONS)
    versions = sorted(_VERSIONS[name] for name in enabled if name in _VERSIONS)
    if not versions:
        raise SecurityError(f"ssl.enabled.protocols {', '.join(enabled)}: only {' and '.join(_VERSIONS)} are supported")
    # Python can choose only among the suites of TLS 1.2; the suites of TLS 1.3 are all allowed or none.
    suites = _names(properties, "ssl.cipher.suites")
    older = [_openssl_name(name) for name in suites if name not in _TLS_1_3_SUITES]
    if suites and not older:
        versions = [one for one in versions if one == ssl.TLSVersion.TLSv1_3]
    elif len(older) == len(suites) > 0:
        versions = [one for one in versions if one == ssl.TLSVersion.TLSv1_2]
    if not versions:
        raise SecurityError("ssl.cipher.suites has no suite of a version of TLS that ssl.enabled.protocols has")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    try:
        if older:
            context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise SecurityError(f"ssl.cipher.suites {', '.join(suites)}: this machine's OpenSSL has none of them") from None
    if entry := keystores.load_key_store(properties):
        _load_client_certificate(context, entry)
    return context


def _names(properties: Properties, name: str) -> list[str]:
    return [one.strip() for one in properties.get(name, "").split(",") if one.strip()]


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").replace("_", "-")
    name = name.replace("AES-128", "AES128").replace("AES-256", "AES256").replace("-CBC-", "-")
    return name.removeprefix("RSA-").removesuffix("-SHA256") if "CHACHA20" in name else name.removeprefix("RSA-")


def _context_trusting_only(certificates: str) -> ssl.SSLContext:
    """Return a context that trusts these certificates alone, even those that are no roots, as Java does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(f"ssl.truststore: no PEM certificates ({_reason(error)})") from None
    return context


def _load_client_certificate(context: ssl.SSLContext, entry: keystores.PrivateKeyEntry) -> None:
    """Load a private key and its certificate chain into a context. Python can read them only from files."""
    with tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace", suffix=".pem") as file:  # mode 600
        file.write(entry.pem)
        file.flush()
        try:
            # The password is never None, at which OpenSSL would ask for it on the terminal.
            context.load_cert_chain(file.name, password=entry.password)
        except (ssl.SSLError, ValueError) as error:
            raise SecurityError(
                f"ssl.keystore: no usable PEM key and certificate chain, or a wrong ssl.key.password ({_reason(error)})"
            ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python is untyped
    """Returns a token that has not expired; requests a new one after four fifths of its lifetime."""

    def __init__(self, request_token: Callable[[], str], extensions: Mapping[str, str]) -> None:
        """Prepare; the first `token()` calls `request_token`."""
        super().__init__()
        self._request_token = request_token
        self._extensions = dict(extensions)
        self._token = ""
        self._refresh_at = 0.0
        self._lock = threading.Lock()

    def token(self) -> str:
        """Return a token. Raises SecurityError if none can be obtained."""
        with self._lock:
            if time.time() >= self._refresh_at:
                self._token = self._request_token()
                self._refresh_at = time.time() + _REFRESH_WINDOW_FACTOR * _remaining_lifetime(self._token)
            return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions (KIP-342)."""
        return self._extensions


def _create_token_provider(properties: Properties) -> TokenProvider:
    """Return a provider of tokens. Raises SecurityError for a callback handler that is not Kafka's own Java code."""
    options = jaas_options(properties, _OAUTH_MODULE)
    handler = properties.get(_HANDLER, "").rpartition(".")[2]
    if not handler:
        raise SecurityError(f"{_HANDLER} is missing: without it Kafka's Java client creates tokens that nobody signs")
    if handler != "OAuthBearerLoginCallbackHandler":
        raise SecurityError(f"{_HANDLER} {handler} is Java code, which only Kafka's Java client can run")
    parts = urlsplit(properties.get(_ENDPOINT, ""))
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # messages must not show user and password
    scheme = parts.scheme
    if scheme not in {"http", "https", "file"}:
        raise SecurityError(f"{_ENDPOINT} {url or 'is missing'}: must be an http, https or file URL")
    prefix = "extension_"
    extensions = {name.removeprefix(prefix): one for name, one in options.items() if name.startswith(prefix)}
    if scheme == "file":
        return TokenProvider(lambda: _read_token(url), extensions)
    options = jaas_options(properties, _OAUTH_MODULE, "clientId", "clientSecret")
    escape = properties.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true"
    # Kafka takes the endpoint's ssl.* settings from the JAAS options.
    context = _ssl_context(options) if scheme == "https" else None
    return TokenProvider(lambda: _request_token(url, options, context, escape=escape), extensions)


def _request_token(url: str, options: Mapping[str, str], context: ssl.SSLContext | None, *, escape: bool) -> str:
    """Request a token with the client credentials grant of RFC 6749, 4.4."""
    client_id, secret = options["clientId"], options["clientSecret"]
    if escape:
        client_id, secret = quote(client_id, safe=""), quote(secret, safe="")
    fields = {"grant_type": "client_credentials", **({"scope": options["scope"]} if options.get("scope") else {})}
    headers = urllib3.make_headers(basic_auth=f"{client_id}:{secret}") | {"Accept": "application/json"}
    try:
        with urllib3.PoolManager(ssl_context=context, timeout=_TIMEOUT_SECONDS, retries=False) as pool:
            response = pool.request("POST", url, fields=fields, headers=headers, encode_multipart=False)
            body = response.json() if response.status == 200 else None  # noqa: PLR2004 - OK
    except (urllib3.exceptions.HTTPError, ValueError, UnicodeError) as error:
        raise SecurityError(f"{_ENDPOINT} {url} returned no token: {_describe(error)}") from None
    if body is None:
        raise SecurityError(
            f"{_ENDPOINT} {url} returned no token: HTTP status {response.status}; "
            "are clientId, clientSecret and scope of sasl.jaas.config right?"
        )
    token = body.get("access_token") if isinstance(body, dict) else None
    if not isinstance(token, str) or not token:
        raise SecurityError(f"{_ENDPOINT} {url} returned no token: the response has no access_token")
    return token


def _describe(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "nothing listens there"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "it did not answer in time"
    return " ".join(str(error).split()) or type(error).__name__


def _read_token(url: str) -> str:
    path = Path(unquote(urlsplit(url).path))
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise SecurityError(f"{_ENDPOINT} {url}: {reason_of(error)}") from None


def _remaining_lifetime(token: str) -> float:
    """Return the seconds until a JWT expires, from its claim `exp`."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(float(claims["exp"]) - time.time(), 0.0)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return _DEFAULT_LIFETIME_SECONDS
