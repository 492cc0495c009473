"""The scheme digest, with each hash and switched off: the same ids, super user included, and the same refusals as
with Apache ZooKeeper."""

import base64
import contextlib
import hashlib

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, InvalidACLError, NoAuthError
from kazoo.security import make_acl

# By Java's names.
HASHES = {"SHA1": "sha1", "sha-224": "sha224", "SHA256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512",
          "SHA-512/256": "sha512_256", "SHA3-256": "sha3_256", "SHA3-512": "sha3_512", "MD5": "md5"}


def digest_id(name, credentials):
    """The id of `user:password`."""
    hashed = hashlib.new(HASHES[name], credentials.encode()).digest()
    return credentials.split(":")[0] + ":" + base64.b64encode(hashed).decode()


@contextlib.contextmanager
def session(server, credentials=None):
    client = KazooClient(server.address, timeout=10, auth_data=credentials and [("digest", credentials)])
    client.start(15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("name", HASHES)
def test_ids_are_made_with_the_chosen_hash(start, name):
    server = start(**{"DigestAuthenticationProvider.digestAlg": name,
                      "DigestAuthenticationProvider.superDigest": digest_id(name, "super:test")})
    with session(server, "alice:pw:of:alice") as alice, session(server, "super:test") as root, \
            session(server, "alice:wrong") as nobody:
        alice.create("/mine", b"1", acl=[make_acl("auth", "", all=True)])
        assert alice.get_acls("/mine")[0] == [make_acl("digest", digest_id(name, "alice:pw:of:alice"), all=True)]
        assert root.get("/mine")[0] == b"1"
        with pytest.raises(NoAuthError):
            nobody.get("/mine")


def test_digests_are_worth_nothing_where_the_scheme_is_switched_off(start):
    server = start()
    alices = make_acl("digest", digest_id("SHA1", "alice:pw"), all=True)
    with session(server, "alice:pw") as alice:
        alice.create("/mine", b"1", acl=[alices])
        alice.create("/shared", b"2", acl=[alices, make_acl("world", "anyone", read=True)])
    server.stop()
    with open(server.config_path, "a", encoding="utf-8") as config:
        config.write("DigestAuthenticationProvider.enabled=false\n")
    server.start()
    with session(server) as nobody:
        assert nobody.get("/shared")[0] == b"2"
        with pytest.raises(NoAuthError):
            nobody.get("/mine")
        with pytest.raises(InvalidACLError):
            nobody.create("/new", acl=[alices])
    for credentials in ("alice:pw", "super:test"):
        with session(server) as client, pytest.raises(AuthFailedError):
            client.add_auth("digest", credentials)


def test_a_scheme_that_is_switched_off_cannot_be_required(start):
    with pytest.raises(RuntimeError):
        start(**{"DigestAuthenticationProvider.enabled": "false", "enforce.auth.enabled": "true",
                 "enforce.auth.schemes": "digest"})


def test_an_unknown_hash_stops_the_start(start):
    with pytest.raises(RuntimeError):
        start(**{"DigestAuthenticationProvider.digestAlg": "SHA-257"})
