"""Administrators who sign in by an OpenID provider: there and back over HTTP, and every token that is no proof."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from studio.admin.access import ADMIN_COOKIE
from studio.admin.provider import _signing_keys
from studio.api.sign_in import FLOW_COOKIE
from tests.api.conftest import Service, serve, stop
from tests.openid_provider import (
    ADA,
    CLIENT_ID,
    CLIENT_SECRET,
    Provider,
    published,
    rsa_key,
    running_provider,
    signed,
)

PASSWORD = "open sesame"
ADMINS = "preferred_username=ada,email=bob@example.org,realm_access.roles=ops,groups=studio"
Claims = dict[str, Any]


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def shared_studio(shared_provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running: list = []
    yield serve(tmp_path_factory.mktemp("studio"), running, *flags(shared_provider))
    stop(running)


@pytest.fixture
def provider(shared_provider: Provider, shared_studio: Service) -> Provider:
    """Fresh, and not known to the studio yet."""
    shared_provider.forget()
    assert shared_studio.office.sign_in is not None
    shared_studio.office.sign_in._provider._read_s = float("-inf")
    shared_studio.office.sign_in._provider.patience_s = 120.0
    return shared_provider


@pytest.fixture
def studio(shared_studio: Service, provider: Provider) -> Service:
    return shared_studio


def flags(provider: Provider) -> tuple[str, ...]:
    return (
        "--admin-password", PASSWORD, "--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT_ID,
        f"--oidc-client-secret={CLIENT_SECRET}", f"--oidc-admins={ADMINS}",
    )  # fmt: skip


def browser(studio: Service) -> httpx.Client:
    return httpx.Client(base_url=studio.url, timeout=120)


def agreed(client: httpx.Client) -> str:
    """Begin, agree at the provider, and give the address that it sends the browser back to."""
    begun = client.get("/admin/oidc/login")
    assert begun.status_code == 303, begun.text
    return httpx.get(f"{begun.headers['location']}&agreed=1").headers["location"]


def signed_in(client: httpx.Client) -> httpx.Response:
    return client.get(agreed(client))


def is_in(client: httpx.Client) -> bool:
    return client.get("/admin/live").status_code == 200


def assert_refused(reply: httpx.Response, client: httpx.Client, reason: str) -> None:
    """A page that says why, with a way on, and no session."""
    assert reply.status_code == 401 and reply.headers["content-type"].startswith("text/html")
    assert reason in reply.text and "/admin/oidc/login" in reply.text, reply.text
    assert ADMIN_COOKIE not in client.cookies and not is_in(client)


def test_administrator_signs_in_is_named_in_the_log_and_leaves(studio: Service) -> None:
    with browser(studio) as client:
        reply = signed_in(client)
        assert (reply.status_code, reply.headers["location"]) == (303, "/#admin")
        assert is_in(client) and FLOW_COOKIE not in client.cookies
        client.post("/admin/apply", json={"changes": {"top_k": 9}}).raise_for_status()
        assert client.get("/admin/changes").json()["changes"][0]["who"] == "ada"
        cookie = client.cookies[ADMIN_COOKIE]
        client.post("/admin/logout").raise_for_status()
        assert httpx.get(f"{studio.url}/admin/live", cookies={ADMIN_COOKIE: cookie}).status_code == 401


def test_cookies_are_out_of_the_reach_of_scripts_and_other_sites_and_end(studio: Service) -> None:
    for headers, secure in (({}, False), ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "voice.example"}, True)):
        begun = httpx.get(f"{studio.url}/admin/oidc/login", headers=headers)
        flow = begun.headers["set-cookie"]
        asked = httpx.URL(begun.headers["location"]).params
        own = "https://voice.example" if secure else studio.url
        assert asked["redirect_uri"] == f"{own}/admin/oidc/callback"
        back = httpx.get(f"{begun.headers['location']}&agreed=1").headers["location"]
        query = httpx.URL(back).params
        cookies = {FLOW_COOKIE: begun.cookies[FLOW_COOKIE]}
        done = httpx.get(f"{studio.url}/admin/oidc/callback", params=query, headers=headers, cookies=cookies)
        assert done.status_code == 303, done.text
        session = next(c for c in done.headers.get_list("set-cookie") if c.startswith(ADMIN_COOKIE))
        for cookie, life in ((flow, "Max-Age=600"), (session, "Max-Age=43200")):
            assert {"HttpOnly", "SameSite=lax", "Path=/admin", life} <= set(cookie.split("; ")), cookie
            assert ("Secure" in cookie.split("; ")) == secure


def test_provider_is_asked_for_pkce_a_state_and_a_nonce_that_are_new_each_time(studio: Service) -> None:
    with browser(studio) as client:
        first, second = (httpx.URL(client.get("/admin/oidc/login").headers["location"]).params for _ in range(2))
    assert first["prompt"] == "login"  # the provider's own
    assert first["scope"] == "openid profile email" and first["code_challenge_method"] == "S256"
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) == 43 and first[name] != second[name]


def bent(**claims: object) -> Callable[[Provider], None]:
    return lambda provider: provider.claims.update(claims)


def sealed(sign: Callable[[Claims], str]) -> Callable[[Provider], None]:
    return lambda provider: setattr(provider, "sign", sign)


def public_pem(name: str) -> bytes:
    return rsa_key(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def confused(claims: Claims) -> str:
    """HS256 with the public key, which everybody has, as the secret; PyJWT itself refuses to make one."""
    parts = ({"alg": "HS256", "kid": "first"}, claims)
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    mark = hmac.new(public_pem("first"), text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


NO_PROOF: dict[str, tuple[Callable[[Provider], None], str]] = {
    "audience": (bent(aud="another"), "Audience"),
    "several audiences, not meant for us": (bent(aud=[CLIENT_ID, "another"]), "azp"),
    "authorized for another": (bent(azp="another"), "azp"),
    "issuer": (bent(iss="https://evil.example"), "issuer"),
    "expired": (bent(exp=10**9), "expired"),
    "no expiry": (bent(exp=None), "exp"),
    "not yet": (bent(iat=4 * 10**9), "not yet valid"),
    "nonce of another sign-in": (bent(nonce="another"), "nonce"),
    "no nonce": (bent(nonce=None), "nonce"),
    "no subject": (bent(sub=None), "sub"),
    "signed by another's key": (
        sealed(lambda claims: jwt.encode(claims, rsa_key("evil"), "RS256", {"kid": "first"})), "Signature",
    ),
    "key that was never published": (sealed(lambda claims: signed(claims, "evil")), "kid"),
    "alg none": (sealed(lambda claims: jwt.encode(claims, None, "none", {"kid": "first"})), "alg"),
    "alg HS256 with the public key": (sealed(confused), "alg"),
    "alg HS256 with our secret": (
        sealed(lambda claims: jwt.encode(claims, CLIENT_SECRET * 4, "HS256", {"kid": "first"})), "alg",
    ),
    "changed after it was signed": (sealed(lambda claims: signed(claims)[:-8] + "AAAAAAAA"), "Signature"),
    "no token": (sealed(lambda claims: "nonsense"), "segments"),
}  # fmt: skip


@pytest.mark.parametrize(("bend", "reason"), NO_PROOF.values(), ids=NO_PROOF.keys())
def test_token_that_proves_nothing_lets_nobody_in(
    studio: Service, provider: Provider, bend: Callable[[Provider], None], reason: str
) -> None:
    bend(provider)
    with browser(studio) as client:
        reply = signed_in(client)
        assert_refused(reply, client, "cannot be trusted")
        assert reason in reply.text


def test_key_that_was_changed_is_fetched_once_more(studio: Service, provider: Provider) -> None:
    with browser(studio) as client:
        assert signed_in(client).status_code == 303
        assert signed_in(client).status_code == 303
        assert provider.asked.count("/keys") == 1
        provider.keys, provider.sign = ["second"], lambda claims: signed(claims, "second")
        assert signed_in(client).status_code == 303
        assert provider.asked.count("/keys") == 2
        provider.sign = signed  # with the key that was withdrawn
    with browser(studio) as client:
        assert_refused(signed_in(client), client, "kid")


def test_only_the_browser_that_began_can_end_a_sign_in(studio: Service, provider: Provider) -> None:
    with browser(studio) as client, browser(studio) as other:
        back = agreed(client)
        assert_refused(other.get(back), other, "begun in another browser")
        forged = str(httpx.URL(back).copy_set_param("state", "forged"))
        assert_refused(client.get(forged), client, "begun in another browser")
    assert "/token" not in provider.asked


def test_code_that_is_sent_again_lets_nobody_in(studio: Service) -> None:
    with browser(studio) as client:
        back = agreed(client)
        flow = client.cookies[FLOW_COOKIE]
        assert client.get(back).status_code == 303
    with browser(studio) as client:
        assert_refused(client.get(back), client, "begun in another browser")
        client.cookies.set(FLOW_COOKIE, flow, domain="127.0.0.1")  # even whoever has the cookie as well
        assert_refused(client.get(back), client, "invalid_grant")


@pytest.mark.parametrize(
    ("claims", "may"),
    [
        ({"preferred_username": "eve"}, False),
        ({"preferred_username": "eve", "email": "bob@example.org"}, True),
        ({"preferred_username": "eve", "email": "bob@example.org", "email_verified": None}, False),
        ({"preferred_username": "eve", "email": "bob@example.org", "email_verified": "true"}, False),
        ({"preferred_username": "eve", "groups": ["guests", "studio"]}, True),
        ({"preferred_username": "eve", "realm_access": {"roles": ["ops"]}}, True),
        ({"preferred_username": "eve", "realm_access": {"roles": "no ops"}}, False),
        ({"preferred_username": ["eve"], "nickname": "ada"}, False),
    ],
    ids=str,
)
def test_only_who_is_on_the_list_is_let_in(studio: Service, provider: Provider, claims: Claims, may: bool) -> None:
    provider.claims.update(claims)
    with browser(studio) as client:
        reply = signed_in(client)
        if may:
            assert is_in(client)
        else:
            assert_refused(reply, client, f"sub={ADA['sub']}")


def test_who_says_no_at_the_provider_is_told_how_to_go_on(studio: Service, provider: Provider) -> None:
    provider.refuses = "access_denied<script>"
    with browser(studio) as client:
        reply = signed_in(client)
        assert_refused(reply, client, "did not let you sign in here (access_denied&lt;script&gt;)")
        assert_refused(client.get("/admin/oidc/callback", headers={"Accept-Language": "zh"}), client, "请重新开始")


def of_no_use(provider: Provider, how: str) -> None:
    if how == "silent":
        provider.silent = True
    elif how == "another issuer":
        provider.document["issuer"] = "https://evil.example"
    elif how == "plain http":
        provider.document["token_endpoint"] = "http://provider.example/token"
    else:
        provider.document["jwks_uri"] = None


@pytest.mark.parametrize("how", ["silent", "another issuer", "plain http", "no keys"])
def test_provider_of_no_use_is_told_and_the_password_still_works(studio: Service, provider: Provider, how: str) -> None:
    of_no_use(provider, how)
    assert studio.office.sign_in is not None
    studio.office.sign_in._provider.patience_s = 0.2 if how == "silent" else 120.0
    with browser(studio) as client:
        reply = client.get("/admin/oidc/login")
        studio.office.sign_in._provider.patience_s = 120.0
        assert reply.status_code == 502 and "password" in reply.text, reply.text
        client.post("/admin/login", json={"password": PASSWORD}).raise_for_status()
        assert is_in(client)


def test_provider_that_is_not_there_is_told(start_service) -> None:
    where = ("--oidc-issuer", "http://127.0.0.1:9", "--oidc-client-id", "x", "--oidc-admins=sub=1")
    studio = start_service("--admin-password", PASSWORD, *where)
    reply = httpx.get(f"{studio.url}/admin/oidc/login")
    assert reply.status_code == 502 and "127.0.0.1:9 does not answer" in reply.text
    with browser(studio) as client:
        client.post("/admin/login", json={"password": PASSWORD}).raise_for_status()
        assert is_in(client)


def test_without_a_list_there_is_no_sign_in(start_service, provider: Provider) -> None:
    where = ("--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT_ID)
    studio = start_service("--admin-password", PASSWORD, *where)
    for path in ("login", "callback"):
        assert httpx.get(f"{studio.url}/admin/oidc/{path}").status_code == 404
    assert provider.issuer not in httpx.get(f"{studio.url}/config").text


def test_way_back_from_the_provider_passes_the_gate_of_the_api_key(start_service, provider: Provider) -> None:
    studio = start_service("--api-key", "secret", *flags(provider))
    from_afar = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    with browser(studio) as client:
        assert client.get("/admin/oidc/callback", headers=from_afar).status_code == 401
        client.get("/?key=secret")
        back = agreed(client)
        assert client.get(back, headers=from_afar).status_code == 303
        assert is_in(client)


def test_keys_that_are_not_for_signatures_are_left_out() -> None:
    other = published("second") | {"use": "enc"}
    found = _signing_keys({"keys": [{"kty": "new"}, "no key", other, published("first")]})
    assert [key.key_id for key in found] == ["first"]
    assert _signing_keys({"keys": None}) == []
