"""The page `docs/security.md`: its commands and settings, run as they stand."""

from page import NEEDS, Page, run

pytestmark = NEEDS

block = Page("security.md").block


def test_from_nothing_to_tls_and_logins(tmp_path):
    certificates, settings = block("From nothing to TLS", "sh"), block("From nothing to TLS", "text")
    client = block("ringkeeper's own client", "sh")
    users, logins = block("Logins by SASL", "text"), block("Logins by SASL", "text", 1)
    printed = run(f"""
{certificates}
cat > base <<'END'
{settings}
END
cp base tls.cfg
start tls
shell() {{
{client}
    ringkeeper shell -s localhost:2281 ls / > by-environment
}}
await shell
grep -q zookeeper by-environment
kill "$server"
wait "$server" || true
cat > jaas.conf <<'END'
{users}
END
chmod 600 jaas.conf
printf '%s\\n' '{logins.strip()}' | cat - base > sasl.cfg
start sasl
echo 'alice:a password' > login
chmod 600 login
await ringkeeper shell -s localhost:2281 --login-file login create /mine x sasl:alice:cdrwa
if ringkeeper shell -s localhost:2281 ls /; then echo 'served without a login'; fi
ringkeeper shell -s localhost:2281 --login-file login getAcl /mine
""", tmp_path)
    assert "served without a login" not in printed
    assert "alice" in printed, printed


def test_subtrees_of_an_identity(tmp_path):
    certificates, settings = block("From nothing to TLS", "sh"), block("From nothing to TLS", "text")
    logins, rules = block("Logins by SASL", "text", 1), block("Subtrees of an identity", "sh")
    printed = run(f"""
{certificates}
cat > zoo.cfg <<'END'
{settings}
{logins}
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
{rules}
as() {{ ringkeeper shell -s localhost:2281 --login-file "$@"; }}
as alice.login create /tenants/a/mine x sasl:alice:cdrwa
as auditor.login get /tenants/a/mine
for refused in "alice.login ls /tenants" "auditor.login set /tenants/a/mine y" "alice.login get /tenants/b"; do
    if as $refused; then echo "not refused: $refused"; fi
done
grep -o 'rule="*sasl:[a-z]*' "$work/zoo.log"
""", tmp_path)
    assert "not refused" not in printed, printed
    assert "sasl:alice\n  acl /tenants/a\n" in printed and "the ACL's entry world:anyone:cdrwa" in printed, printed
    assert "sasl:alice" in printed.split("world:anyone:cdrwa")[-1] and "sasl:auditor" in printed, printed


def test_logins_by_scram(tmp_path):
    run(f"""
{block("SCRAM-SHA-256", "sh")}
printf '%s\\n' '{block("SCRAM-SHA-256", "text").strip()}' clientPort=2181 > scram.cfg
start scram
export RINGKEEPER_LOGIN='alice:a password' RINGKEEPER_LOGIN_MECHANISM=scram-sha-256
await ringkeeper shell create /mine x sasl:alice:cdrwa
if RINGKEEPER_LOGIN=alice:guess ringkeeper shell ls /; then exit 1; fi
ringkeeper shell getAcl /mine
""", tmp_path)


def test_tls_between_servers(tmp_path):
    authority = block("From nothing to TLS", "sh")
    certificates, settings = block("Certificates of servers", "sh"), block("Certificates of servers", "text")
    run(f"""
{authority}
{certificates}
for number in 1 2 3; do
    mkdir "$work/zoo$number"
    echo "$number" > "$work/zoo$number/myid"
    sed "s/zoo1.pem/zoo$number.pem/" > "zoo$number.cfg" <<'END'
tickTime=2000
initLimit=10
syncLimit=5
clientPort=2181
{settings}
END
    echo "clientPortAddress=127.0.0.$number" >> "zoo$number.cfg"
    start "zoo$number"
done
for number in 1 2 3; do
    await ringkeeper shell -s "zoo$number:2181" ls /
    await grep -q 'certified=true' "$work/zoo$number.log"
done
""", tmp_path)
