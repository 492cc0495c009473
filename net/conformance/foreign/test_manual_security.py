"""The page `docs/security.md`: its commands and settings, run as they stand."""

import re

from page import NEEDS, Page, run

pytestmark = NEEDS

block = Page("security.md").block

AUTHORITY, TLS = block("From nothing to TLS", "sh"), block("From nothing to TLS", "text")
CLIENT = block("ringkeeper's own client", "sh")
REVOCATION = block("Revocation", "text")
MEMBERS, MEMBERS_TLS = block("Certificates of servers", "sh"), block("Certificates of servers", "text")
MEMBERS_USERS = block("Users between servers", "text")
SUPER_DIGEST = block("Passwords of the scheme digest", "text")
USERS, LOGINS = block("Logins by SASL", "text"), block("Logins by SASL", "text", 1)
SCRAM_USER, SCRAM = block("SCRAM-SHA-256", "sh"), block("SCRAM-SHA-256", "text")
RULES = block("Subtrees of an identity", "sh")
RECORD = block("Audit log", "text")


def test_from_nothing_to_tls_and_logins(tmp_path):
    printed = run(f"""
{AUTHORITY}
cat > base <<'END'
{TLS}
END
cp base tls.cfg
start tls
shell() {{
{CLIENT}
    ringkeeper shell -s localhost:2281 ls / > by-environment
}}
await shell
grep -q zookeeper by-environment
kill "$server"
wait "$server" || true
cat > jaas.conf <<'END'
{USERS}
END
chmod 600 jaas.conf
printf '%s\\n' '{LOGINS.strip()}' | cat - base > sasl.cfg
start sasl
echo 'alice:a password' > login
chmod 600 login
await ringkeeper shell -s localhost:2281 --login-file login create /mine x sasl:alice:cdrwa
if ringkeeper shell -s localhost:2281 ls / 2> why; then echo 'served without a login'; fi
cat why
ringkeeper shell -s localhost:2281 --login-file login getAcl /mine
""", tmp_path)
    assert "served without a login" not in printed and "SessionClosedRequireSaslAuth" in printed, printed
    assert "alice" in printed, printed


def test_subtrees_of_an_identity(tmp_path):
    printed = run(f"""
{AUTHORITY}
cat > zoo.cfg <<'END'
{TLS}
{LOGINS}
superUser=admin
END
cat > jaas.conf <<'END'
Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_admin="x" user_alice="x" user_auditor="x"; }};
END
for user in admin alice auditor; do echo "$user:x" > $user.login; done
chmod 600 jaas.conf *.login
export RINGKEEPER_TLS_TRUST_STORE=ca.pem RINGKEEPER_TLS_KEY_STORE=client.pem
start zoo
await ringkeeper shell -s localhost:2281 --login-file admin.login ls /
{RULES}
as() {{ ringkeeper shell -s localhost:2281 --login-file "$@"; }}
as alice.login create /tenants/a/mine x sasl:alice:cdrwa
as auditor.login get /tenants/a/mine
for refused in "alice.login ls /tenants" "auditor.login set /tenants/a/mine y" "alice.login get /tenants/b"; do
    if as $refused 2> why; then echo "not refused: $refused"; fi
    cat why
done
grep -o 'rule="*sasl:[a-z]*' "$work/zoo.log"
""", tmp_path)
    assert "not refused" not in printed and printed.count("not permitted by the ACL") == 3, printed
    assert "sasl:alice\n  acl /tenants/a\n" in printed and "the ACL's entry world:anyone:cdrwa" in printed, printed
    assert "sasl:alice" in printed.split("world:anyone:cdrwa")[-1] and "sasl:auditor" in printed, printed


def test_logins_by_scram(tmp_path):
    run(f"""
{SCRAM_USER}
printf '%s\\n' '{SCRAM.strip()}' clientPort=2181 > scram.cfg
start scram
export RINGKEEPER_LOGIN='alice:a password' RINGKEEPER_LOGIN_MECHANISM=scram-sha-256
await ringkeeper shell create /mine x sasl:alice:cdrwa
if RINGKEEPER_LOGIN=alice:guess ringkeeper shell ls /; then exit 1; fi
ringkeeper shell getAcl /mine
""", tmp_path)


def test_tls_between_servers(tmp_path):
    run(f"""
{AUTHORITY}
{MEMBERS}
for number in 1 2 3; do
    sed "s/zoo1.pem/zoo$number.pem/" <<'END' | member "$number"
{MEMBERS_TLS}
END
done
for number in 1 2 3; do
    await ringkeeper shell -s "zoo$number:2181" ls /
    await grep -q 'certified=true' "$work/zoo$number.log"
done
""", tmp_path)


def test_users_between_servers(tmp_path):
    run(f"""
cat > jaas.conf <<'END'
{MEMBERS_USERS}
END
sed 's/the password of the servers/another one/' jaas.conf > another.conf
chmod 600 *.conf
with() {{
    printf 'server.%s=zoo%s:2888:3888\n' 1 1 2 2 3 3
    printf 'quorum.auth.%s=true\n' enableSasl learnerRequireSasl serverRequireSasl
    echo "java.security.auth.login.config=/etc/ringkeeper/$1"
}}
member 3 < <(with another.conf)
stranger=$server
with jaas.conf | member 1
await grep 'nor a user with the same password' "$work"/zoo?.log
kill "$stranger"
wait "$stranger" || true
rm -r "$work/zoo3"
with jaas.conf | member 2
with jaas.conf | member 3
for number in 1 2 3; do await ringkeeper shell -s "zoo$number:2181" ls /; done
""", tmp_path)


def test_a_revoked_certificate_is_refused(tmp_path):
    run(f"""
{AUTHORITY}
printf '[ca]\ndefault_ca=our\n[our]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\n' > ca.cnf
touch index
echo 01 > number
ca() {{ openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key "$@"; }}
ca -gencrl -crldays 30 -out crl.pem
cat > zoo.cfg <<'END'
{TLS}
{REVOCATION}
END
start zoo
{CLIENT}
await ringkeeper shell -s localhost:2281 ls /
ca -revoke client.crt
ca -gencrl -crldays 30 -out crl.pem
refused() {{ ! ringkeeper shell -s localhost:2281 --connect-timeout 1000 ls /; }}
await refused
grep -i revoked "$work/zoo.log"
""", tmp_path)


def test_the_super_user_has_the_password_whose_digest_is_shown(tmp_path):
    digest = SUPER_DIGEST.split("the value is ")[1].strip()
    run(f"""
test "super:$({SUPER_DIGEST})" = {digest}
printf '%s\n' clientPort=2181 'DigestAuthenticationProvider.superDigest={digest}' > zoo.cfg
start zoo
await ringkeeper shell create /mine x digest:nobody:nobody:cdrwa
if ringkeeper shell get /mine; then exit 1; fi
ringkeeper shell --auth digest:super:secret get /mine
""", tmp_path)


def test_a_change_leaves_the_record_that_is_shown(tmp_path):
    printed = run("""
printf '%s\n' clientPort=2181 audit.enable=true > zoo.cfg
start zoo
await ringkeeper shell --auth digest:bob:secret create /a
await grep --no-filename 'operation=create' -r "$work/zoo/audit"
""", tmp_path)
    shape = lambda record: re.sub("[0-9a-f]*[0-9][0-9a-f]*", "N", record.strip())
    assert shape(RECORD) in shape(printed), printed
