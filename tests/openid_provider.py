"""An OpenID provider over real HTTP: discovery, a page to agree on, codes that work once, and RSA keys that may change.

What it says can be bent by a test; what it is asked it judges strictly, since a client must be held to it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "studio", "s3cret/+ %"
ADA = {"sub": "5f1a", "preferred_username": "ada", "email": "ada@example.org", "email_verified": True}


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key for each name; a run makes each once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def published(name: str) -> dict[str, Any]:
    """The public half as a JWK."""
    jwk: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True)
    return jwk | {"kid": name, "use": "sig", "alg": "RS256"}


def signed(claims: dict[str, Any], name: str = "first") -> str:
    return jwt.encode(claims, rsa_key(name), "RS256", {"kid": name})


@dataclass
class Provider:
    """Set what it says before a sign-in; `asked` counts the requests by path."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=lambda: ["first"])
    sign: Callable[[dict[str, Any]], str] = signed
    refuses: str = ""
    silent: bool = False
    asked: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    _heard: threading.Event = field(default_factory=threading.Event, repr=False)

    def forget(self) -> None:
        """As it was at its start, but for its address."""
        fresh = Provider(self.issuer)
        for name in ("claims", "document", "keys", "sign", "refuses", "silent", "asked", "_codes"):
            setattr(self, name, getattr(fresh, name))

    def published_document(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?prompt=login",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        } | self.document

    def code_for(self, query: dict[str, str]) -> str:
        """Where a browser is sent back to."""
        wanted = {"response_type": "code", "client_id": CLIENT_ID, "code_challenge_method": "S256"}
        assert wanted.items() <= query.items(), query
        assert "openid" in query["scope"].split() and len(query["code_challenge"]) == 43, query
        answer = {"state": query["state"], "iss": self.issuer}
        if self.refuses:
            answer["error"] = self.refuses
        else:
            answer["code"] = secrets.token_urlsafe(12)
            self._codes[answer["code"]] = query
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def token_for(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str]]:
        """What a code stands for: it works once, for this client, this address and whoever began."""
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":")
        if [unquote(part) for part in given] != [CLIENT_ID, CLIENT_SECRET]:
            return 401, {"error": "invalid_client"}
        query = self._codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if (
            query is None
            or form["redirect_uri"] != query["redirect_uri"]
            or challenge.decode().rstrip("=") != query["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": query["nonce"]}
        said = {name: value for name, value in (claims | ADA | self.claims).items() if value is not None}
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": self.sign(said)}


@contextmanager
def running_provider(host: str = "127.0.0.1") -> Iterator[Provider]:
    """One that answers at a free port; by the name of localhost it is another site than 127.0.0.1 to a browser."""
    provider = Provider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(provider))
    server.daemon_threads = True
    provider.issuer = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        provider._heard.set()
        server.shutdown()
        thread.join()
        server.server_close()


def handler_of(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            where = urlsplit(self.path)
            query = dict(parse_qsl(where.query))
            if not self._noted(where.path):
                return
            if where.path == "/.well-known/openid-configuration":
                self._json(200, provider.published_document())
            elif where.path == "/keys":
                self._json(200, {"keys": [{"kty": "new"}, *map(published, provider.keys)]})
            elif where.path == "/authorize" and "agreed" not in query:
                link = f"<a id=agree href='/authorize?{where.query}&agreed=1'>Agree</a>"
                self._send(200, "text/html", f"<!doctype html><title>Provider</title>{link}".encode())
            elif where.path == "/authorize":
                self._send(302, "text/plain", b"", {"Location": provider.code_for(query)})
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            if self._noted(self.path):
                self._json(*provider.token_for(form, self.headers.get("Authorization", "")))

        def _noted(self, path: str) -> bool:
            provider.asked.append(path)
            if provider.silent:
                provider._heard.wait()  # until the test is over
            return not provider.silent

        def _json(self, status: int, body: dict[str, Any]) -> None:
            self._send(status, "application/json", json.dumps(body).encode())

        def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    return Handler
