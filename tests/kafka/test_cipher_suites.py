"""`ssl.cipher.suites` limits the connection, and no line shows the user of a token endpoint."""

from __future__ import annotations

import ssl

import pytest

from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.security import _request_token, security_settings


def context(suites: str) -> ssl.SSLContext:
    made = security_settings({"security.protocol": "SSL", "ssl.cipher.suites": suites})["ssl_context"]
    assert isinstance(made, ssl.SSLContext)
    return made


def of_tls_1_2(made: ssl.SSLContext) -> set[str]:
    return {one["name"] for one in made.get_ciphers() if not one["name"].startswith("TLS_")}


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", {"ECDHE-RSA-AES128-GCM-SHA256"}),
        (
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_256_GCM_SHA384",
            {"ECDHE-ECDSA-AES256-GCM-SHA384", "AES256-GCM-SHA384"},
        ),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", {"ECDHE-RSA-CHACHA20-POLY1305"}),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", {"ECDHE-RSA-AES256-SHA384"}),
    ],
)
def test_only_the_named_suites_are_offered_and_no_tls_1_3(suites: str, expected: set[str]) -> None:
    made = context(suites)
    assert of_tls_1_2(made) == expected
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2


def test_suites_of_tls_1_3_alone_exclude_tls_1_2_and_with_others_allow_both() -> None:
    assert context("TLS_AES_256_GCM_SHA384").minimum_version == ssl.TLSVersion.TLSv1_3
    both = context("TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    assert of_tls_1_2(both) == {"ECDHE-RSA-AES128-GCM-SHA256"}
    assert both.minimum_version == ssl.TLSVersion.TLSv1_2
    assert both.maximum_version >= ssl.TLSVersion.TLSv1_3 or both.maximum_version == ssl.TLSVersion.MAXIMUM_SUPPORTED


@pytest.mark.parametrize(
    ("protocols", "suites"),
    [("TLSv1.3", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), ("TLSv1.2", "TLS_AES_256_GCM_SHA384")],
)
def test_suites_of_no_enabled_version_are_a_line(protocols: str, suites: str) -> None:
    properties = {"security.protocol": "SSL", "ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites}
    with pytest.raises(SecurityError, match=r"^ssl\.cipher\.suites has no suite of a version of TLS"):
        security_settings(properties)


def test_suites_that_are_not_known_are_a_line() -> None:
    with pytest.raises(SecurityError, match=r"^ssl\.cipher\.suites TLS_ODD: this machine's OpenSSL has none of them$"):
        context("TLS_ODD")


def test_no_line_shows_the_user_of_a_token_endpoint() -> None:
    options = {"clientId": "id", "clientSecret": "secret"}
    with pytest.raises(SecurityError) as refused:
        _request_token("http://alice:pa55@127.0.0.1:1/token", options, None, escape=False)
    assert "http://127.0.0.1:1/token returned no token" in str(refused.value)
    assert "pa55" not in str(refused.value)
    assert "alice" not in str(refused.value)
