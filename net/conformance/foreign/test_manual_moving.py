"""The pages by which servers, members and tenants come and go: `docs/install.md`, `docs/migration.md`,
`docs/membership.md`, `docs/tenants.md`. Their commands and settings, run as they stand."""

import pathlib
import re

from page import NEEDS, Page, on, run

pytestmark = NEEDS

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "apache/tests/fixtures/zookeeper-3.9.tar.gz"

INSTALL, MIGRATION = Page("install.md"), Page("migration.md")
MEMBERSHIP, TENANTS = Page("membership.md"), Page("tenants.md")
START, SECURITY = Page("start.md"), Page("security.md")

ON_EACH, IS_READY = INSTALL.block("Three machines", "text"), INSTALL.block("Upgrade, remove", "sh")
SETTINGS = START.block("Three servers", "text")
IMPORT = MIGRATION.block("Moving from Apache ZooKeeper, and back", "sh")
EXPORT = MIGRATION.block("Back to Apache ZooKeeper 3.9", "sh")
ADD, REMOVE = MEMBERSHIP.block("Adding servers", "text"), MEMBERSHIP.block("Removing servers", "text")
IN_GROUPS = MEMBERSHIP.block("Voters in groups", "text")
LIMITS, PROTECTED = TENANTS.block("Tenants", "sh"), TENANTS.block("Who may change limits", "sh")
SUPER_DIGEST = SECURITY.block("Passwords of the scheme digest", "text").split("the value is ")[1].strip()


def test_the_user_of_the_service_reads_what_is_installed(tmp_path):
    run(f"""
id ringkeeper || useradd --system ringkeeper
chmod 755 /etc/ringkeeper
sudo() {{ runuser --user "$2" -- "${{@:3}}"; }}
# There is no systemd; the unit starts a server as this user.
systemctl() {{
    case $1 in start) sudo -u ringkeeper ringkeeper server --config "/etc/ringkeeper/$number.cfg" & esac
}}
mkdir "$work/files"
cd "$work/files"
openssl rand -hex 32 > peer-secret
for number in 1 2 3; do
    cat > /etc/ringkeeper/$number.cfg <<END
{on("$number", SETTINGS)}
clientPortAddress=127.0.0.$number
admin.serverAddress=127.0.0.$number
END
    install --directory --owner ringkeeper --group ringkeeper --mode 0700 /var/lib/ringkeeper/$number
{on("$number", ON_EACH)}
done
{IS_READY}
""", tmp_path)


def test_an_import_serves_and_its_export_is_imported(tmp_path):
    printed = run(f"""
mkdir /var/lib/zookeeper
tar --extract --gzip --file {FIXTURE} --directory /var/lib/zookeeper
printf '%s\\n' clientPort=2181 dataDir=/var/lib/ringkeeper > zoo.cfg
{IMPORT.strip()} &
server=$!
await ringkeeper shell create /moved x
kill "$server"
wait "$server" || true
rm -r /var/lib/zookeeper
{EXPORT}
ringkeeper import --from /var/lib/zookeeper --to "$work/again"
ringkeeper server --data-dir "$work/again" &
await ringkeeper shell get /moved
""", tmp_path)
    assert printed.count("imported") == 2, printed


def test_members_join_and_leave(tmp_path):
    printed = run(f"""
settings() {{
    for number; do echo "server.$number=zoo$number:2888:3888:participant;2181"; done
    printf '%s\\n' reconfigEnabled=true 'DigestAuthenticationProvider.superDigest={SUPER_DIGEST}'
}}
for number in 1 2 3; do settings 1 2 3 | member $number; done
await ringkeeper shell -s zoo1:2181 ls /
for number in 4 5; do settings 1 2 3 $number | member $number; done
typed() {{ ringkeeper shell -s zoo1:2181 --auth digest:super:secret <<< "$1"; }}
await typed '{ADD.strip()}'
await typed '{REMOVE.strip()}'
echo 'the members:'
typed config
cat > groups <<'END'
{IN_GROUPS}
END
echo 'in groups:'
await typed 'reconfig -file groups'
""", tmp_path)
    members, grouped = printed.split("the members:")[1].split("in groups:")
    assert re.findall(r"^server\.(\d)", members, re.MULTILINE) == list("1345")
    assert "group.1=1:2\ngroup.2=3\nweight.1=1\nweight.2=3\nweight.3=1\nversion=" in grouped


def test_tenants_have_limits_that_others_cannot_change(tmp_path):
    run(f"""
cat > jaas.conf <<'END'
Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_admin="x"; }};
END
echo admin:x > admin.login
chmod 600 jaas.conf admin.login
printf '%s\\n' clientPort=2181 java.security.auth.login.config=/etc/ringkeeper/jaas.conf > zoo.cfg
start zoo
await ringkeeper shell create /tenants
ringkeeper shell create /tenants/a
{LIMITS}
{PROTECTED}
if ringkeeper shell settenant /tenants/a ops=1; then exit 1; fi
ringkeeper shell listtenants | grep ops=1000
""", tmp_path)
