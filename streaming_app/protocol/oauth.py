"""Tokens for SASL OAUTHBEARER, from where Kafka's own callback handlers have them: an endpoint, a file, or made up."""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import urllib3
from kafka.net.sasl.oauth import AbstractTokenProvider

from streaming_app.protocol.jaas import jaas_options
from streaming_app.protocol.properties import Properties, SecurityError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_HANDLER = "sasl.login.callback.handler.class"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_REFRESH_AT = 0.8  # of a token's life: Kafka's default
_UNKNOWN_LIFE_SECONDS = 60.0  # of a token that does not tell when it ends
_ANSWER_SECONDS = 10.0
_UNSECURED_LIFE_SECONDS = 3600

Context = Callable[[Properties], ssl.SSLContext]


class Tokens(AbstractTokenProvider):  # type: ignore[misc] # kafka-python is untyped
    """Gives a token that has not ended, asking for a new one when four fifths of its life are over."""

    def __init__(self, ask: Callable[[], str], extensions: Mapping[str, str]) -> None:
        """Prepare; the first `token()` asks."""
        super().__init__()
        self._ask = ask
        self._extensions = dict(extensions)
        self._token = ""
        self._renew_at = 0.0
        self._asking = threading.Lock()

    def token(self) -> str:
        """A token. Raises SecurityError where none can be had."""
        with self._asking:
            if time.time() >= self._renew_at:
                self._token = self._ask()
                self._renew_at = time.time() + _REFRESH_AT * _life_seconds(self._token)
            return self._token

    def extensions(self) -> dict[str, str]:
        """SASL extensions (KIP-342)."""
        return self._extensions


def tokens(properties: Properties, context: Context) -> Tokens:
    """What these properties name as the source of tokens. `context` makes a TLS context from `ssl.*` settings.

    Raises SecurityError for a callback handler of somebody else, which is Java code.
    """
    options = jaas_options(properties.get("sasl.jaas.config"), MODULE)
    handler = properties.get(_HANDLER, "").rpartition(".")[2]
    if not handler or handler == "OAuthBearerUnsecuredLoginCallbackHandler":
        return Tokens(lambda: _unsecured(options), _with_prefix(options, "unsecuredLoginExtension_"))
    if handler != "OAuthBearerLoginCallbackHandler":
        raise SecurityError(f"{_HANDLER} {handler} is Java code, which only the job's own reader can run")
    url = properties.get(_ENDPOINT, "")
    scheme = urlsplit(url).scheme
    if scheme not in {"http", "https", "file"}:
        raise SecurityError(f"{_ENDPOINT} {url or 'is missing'}: must be an http, https or file URL")
    extensions = _with_prefix(options, "extension_")
    if scheme == "file":
        return Tokens(lambda: _from_file(url), extensions)
    missing = [name for name in ("clientId", "clientSecret") if not options.get(name)]
    if missing:
        raise SecurityError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    escaped = properties.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true"
    secure = context(options) if scheme == "https" else None  # Kafka takes the endpoint's ssl.* from the JAAS options
    return Tokens(lambda: _from_endpoint(url, options, secure, escaped=escaped), extensions)


def _from_endpoint(url: str, options: Mapping[str, str], secure: ssl.SSLContext | None, *, escaped: bool) -> str:
    """The client credentials grant of RFC 6749, 4.4."""
    who, secret = options["clientId"], options["clientSecret"]
    if escaped:
        who, secret = quote(who, safe=""), quote(secret, safe="")
    fields = {"grant_type": "client_credentials", **({"scope": options["scope"]} if options.get("scope") else {})}
    headers = urllib3.make_headers(basic_auth=f"{who}:{secret}") | {"Accept": "application/json"}
    try:
        with urllib3.PoolManager(ssl_context=secure, timeout=_ANSWER_SECONDS, retries=False) as pool:
            answer = pool.request("POST", url, fields=fields, headers=headers, encode_multipart=False)
            said = answer.json() if answer.status == 200 else None  # noqa: PLR2004 - OK
    except (urllib3.exceptions.HTTPError, ValueError, UnicodeError) as error:
        raise SecurityError(f"{_ENDPOINT} {url} gives no token: {_why(error)}") from None
    if said is None:
        raise SecurityError(
            f"{_ENDPOINT} {url} gives no token: it answers {answer.status}; are clientId, clientSecret and scope of "
            "sasl.jaas.config right?"
        )
    token = said.get("access_token") if isinstance(said, dict) else None
    if not isinstance(token, str) or not token:
        raise SecurityError(f"{_ENDPOINT} {url} gives no token: there is no access_token in its answer")
    return token


def _why(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "nothing listens there"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "it does not answer in time"
    return " ".join(str(error).split()) or type(error).__name__


def _from_file(url: str) -> str:
    path = Path(unquote(urlsplit(url).path))
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise SecurityError(f"{_ENDPOINT} {url}: {getattr(error, 'strerror', None) or error}") from None


def _unsecured(options: Mapping[str, str]) -> str:
    """A token that nobody signed, as Kafka makes where no callback handler is set: for tests."""
    claims: dict[str, Any] = {
        **_with_prefix(options, "unsecuredLoginStringClaim_"),
        **{name: float(value) for name, value in _with_prefix(options, "unsecuredLoginNumberClaim_").items()},
    }
    now = time.time()
    life = int(options.get("unsecuredLoginLifetimeSeconds", _UNSECURED_LIFE_SECONDS))
    claims = {"iat": now, "exp": now + life, **claims}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _life_seconds(token: str) -> float:
    """What is left of a JWT's life by its claim `exp`."""
    try:
        middle = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        return max(float(claims["exp"]) - time.time(), 0.0)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return _UNKNOWN_LIFE_SECONDS
