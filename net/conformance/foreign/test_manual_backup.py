"""The page `docs/backup.md`: its commands and its unit, run as they stand, with a server of S3's protocol."""

import configparser
import re
import shlex

import object_store
from page import NEEDS, Page, run

pytestmark = NEEDS

PAGE = Page("backup.md")
SHIP, VERIFY, RESTORE = re.split("\n(?=ringkeeper)", PAGE.block("Backup, restore, disaster drill", "sh"))
UNIT = PAGE.block("As a service", "ini")
SUBTREE = PAGE.block("A subtree", "sh")


def test_a_backup_is_shipped_verified_and_restored(tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    command, environment = object_store.prepare(folder, "http://127.0.0.1:9000")
    variables = "\n".join(f"export {name}={value}" for name, value in environment.items())
    unit = configparser.ConfigParser()
    unit.optionxform = str
    unit.read_string(UNIT)
    run(f"""
{variables}
{shlex.join(command)} > "$work/s3" 2>&1 &
await curl --silent --output /dev/null "$AWS_ENDPOINT"
openssl rand -hex 32 > backup.key
printf '%s\\n' clientPort=2181 admin.rateLimiterIntervalInMS=1 > zoo.cfg
start zoo
await ringkeeper shell create /app

# The page's command goes on until it is stopped; each round tells of itself when it is over.
ship() {{
    rm -f round
    {SHIP} > round &
    await test -s round
    kill $!
    wait $! || true
}}
ship
{VERIFY}
ringkeeper shell create /app/kept
moment=$(date --utc +%FT%T.%3NZ)
ringkeeper shell create /app/late
ship
{RESTORE.replace("2026-11-24T09:30:00Z", "$moment")}
for number in 1 2 3; do
    ringkeeper snapshot export --data-dir /srv/restored/$number > znodes
    grep /app/kept znodes
    if grep /app/late znodes; then exit 1; fi
done

# The page restores a subtree from a store that has no key.
rm -r {folder}/buckets/backups/zk
ringkeeper backup --server zk1:8080 --to s3://backups/zk --once
ringkeeper shell create /app/later
zxid=$(ringkeeper shell stat /app/later | grep -o 0x1.* | head -n 1)
ringkeeper shell --yes deleteall /app
ringkeeper backup --server zk1:8080 --to s3://backups/zk --once
{SUBTREE.replace("0x10000002a", "$zxid")}
for name in kept late later; do ringkeeper shell get /app/$name; done

mkdir /var/lib/ringkeeper-backup
{unit["Service"]["ExecStart"]} &
await grep ringkeeper_backup_zxid /var/lib/ringkeeper-backup/backup.prom
""", tmp_path)
