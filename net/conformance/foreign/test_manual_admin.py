"""The page `docs/admin.md`, and what other pages ask the admin listener: run as it stands."""

import yaml

from page import NEEDS, Page, run

pytestmark = NEEDS

ADMIN, OPERATIONS, SECURITY = Page("admin.md"), Page("operations.md"), Page("security.md")

QUESTIONS = ADMIN.block("The admin listener", "sh")
LEVELS = ADMIN.block("Levels of the log", "sh")
SNAPSHOT = ADMIN.block("A snapshot over HTTP", "sh")
FEED = ADMIN.block("The feed of transactions", "sh")
HAND_OVER, HAND_OVER_BY_HTTP = ADMIN.block("Leadership is handed over", "sh").splitlines()
PROBES = yaml.safe_load(ADMIN.block("Probes", "yaml"))
FEATURE_LEVELS = OPERATIONS.block("Feature levels", "sh")
LEAD = OPERATIONS.block("Restart servers one at a time", "sh")
WHY_SLOW = OPERATIONS.block("Why is it slow", "sh")
AUTHORITY = SECURITY.block("From nothing to TLS", "sh")
CERTIFICATES = SECURITY.block("Certificates of servers", "sh")

# An answer that is an error ends the script.
CURL = 'curl() { command curl --silent --show-error --fail "$@"; }\n'


def test_a_server_alone_is_asked(tmp_path):
    probes = [probe["httpGet"] for probe in PROBES.values()]
    asked = "\n".join(f"curl http://127.0.0.1:{probe['port']}{probe['path']}" for probe in probes)
    printed = run(f"""
echo clientPort=2181 > zoo.cfg
start zoo
await ringkeeper shell create /app before
{CURL}
{QUESTIONS}
{asked}
{LEVELS}
{SNAPSHOT}
head --bytes 4 snapshot | grep ZKSN
# Nobody is here who would press Ctrl-C.
ringkeeper() {{ command ringkeeper "$@" >> told & }}
{FEED}
unset -f ringkeeper
ringkeeper shell set /app after
told() {{ ringkeeper shell set /app after; grep 'setData /app' told && grep '"data":"after"' told; }}
await told
""", tmp_path)
    # Metrics, a level that falls back, and a frame of the log.
    assert "# TYPE" in printed and '"seconds_left"' in printed and "RKPB" in printed, printed


def test_leadership_is_handed_over_and_the_feature_level_changed(tmp_path):
    by_leader = lambda command: command.replace("127.0.0.1", "127.0.0.$leader").replace("'", '"')
    run(f"""
{CURL}
members() {{ printf 'server.%s=zoo%s:2888:3888\\n' 1 1 2 2 3 3; }}
leads() {{ curl "http://127.0.0.$1:8080/commands/leader" | grep "\\"leader_id\\": $2"; }}
for number in 1 2 3; do members | member $number; done
for number in 1 2 3; do await curl "http://127.0.0.$number:8080/readyz"; done
leader=1
if leads 1 2; then leader=2; elif leads 1 3; then ringkeeper admin lead 1 --server 127.0.0.3:8080; fi
{by_leader(HAND_OVER)}
leads $leader 3
await ringkeeper admin lead $leader --server 127.0.0.3:8080
{by_leader(HAND_OVER_BY_HTTP)}
leads $leader 3
await ringkeeper admin lead $leader --server 127.0.0.3:8080
{by_leader(LEAD)}
leads $leader 3
risen() {{ ringkeeper admin feature-level --server 127.0.0.3:8080 | grep 'level 2'; }}
await risen
{FEATURE_LEVELS.replace("127.0.0.1", "127.0.0.3")}
await risen
""", tmp_path)


def test_a_server_with_tls_is_asked(tmp_path):
    run(f"""
{AUTHORITY}
{CERTIFICATES}
printf '%s\\n' clientPort=2181 admin.forceHttps=true > zoo.cfg
echo ssl.quorum.keyStore.location=/etc/ringkeeper/zoo1.pem >> zoo.cfg
echo ssl.quorum.trustStore.location=/etc/ringkeeper/ca.pem >> zoo.cfg
start zoo
await {WHY_SLOW.replace("zk1", "zoo1")}
""", tmp_path)
