"""The page `docs/security.md`: its commands and settings, run as they stand.

They name ports, folders below `/etc` and hosts, so they run in namespaces of their own: nothing of this is seen
outside, and all of it ends with the test. That takes root.
"""

import os
import pathlib
import re
import subprocess

import pytest

from server import BINARY, SUBJECT

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "security.md"

pytestmark = [
    pytest.mark.skipif(SUBJECT != "ringkeeper", reason="the page is about ringkeeper"),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces take root"),
]

# `$work` is a folder for data and logs.
PRELUDE = r"""
ip link set lo up
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/lower"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/upper,workdir=$work/lower" /etc
printf '127.0.0.%s zoo%s\n' 1 1 2 2 3 3 >> /etc/hosts
mkdir /etc/ringkeeper
cd /etc/ringkeeper

# Starts a server with the file NAME.cfg, whose data are in a folder of that name.
start() {
    mkdir -p "$work/$1"
    echo "dataDir=$work/$1" >> "$1.cfg"
    ringkeeper server --config "$1.cfg" > "$work/$1.log" 2>&1 &
    server=$!
}

# Repeats a command until it succeeds.
await() {
    for _ in $(seq 60); do
        if "$@"; then return; fi
        sleep 0.5
    done
    tail -n 20 "$work"/*.log
    return 1
}
"""


def block(heading, language, number=0):
    """One of the code blocks below a heading of the page."""
    section = re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE)
    body = next(text for text in section if text.startswith(heading + "\n"))
    return re.findall(rf"^```{language}\n(.*?)^```", body, flags=re.MULTILINE | re.DOTALL)[number]


def run(script, tmp_path):
    """Runs a script of bash in namespaces of its own."""
    environment = {**os.environ, "work": str(tmp_path), "PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child",
                          "bash", "-euo", "pipefail", "-c", PRELUDE + script],
                         env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    return ran.stdout


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
