"""The pages `docs/start.md` and `docs/drills.md`: their commands and settings, run as they stand."""

import page

pytestmark = page.NEEDS

START, DRILLS = page.Page("start.md"), page.Page("drills.md")

ALONE, BY_HAND = START.block("One server", "sh"), START.block("One server", "sh", 1)
SETTINGS, SECRET = START.block("Three servers", "text"), START.block("Three servers", "sh")
MEMBER, BY_CLIENTS = START.block("Three servers", "sh", 1), START.block("Three servers", "sh", 2)
PROBES = START.block("Three servers", "sh", 3)
PRACTICE = DRILLS.blocks("sh")


def test_one_server(tmp_path):
    printed = page.run(f"""
{ALONE}
await ringkeeper shell ls /
{BY_HAND}
kill %1
wait
""", tmp_path)
    assert "hello" in printed


def test_three_servers(tmp_path):
    printed = page.run(f"""
{SECRET}
for number in 1 2 3; do
    cat > $number.cfg <<END
{page.on("$number", SETTINGS)}
clientPortAddress=127.0.0.$number
admin.serverAddress=127.0.0.$number
END
    (
{page.on("$number", MEMBER)}
    ) > "$work/$number.log" 2>&1 &
done
for number in 1 2 3; do await ringkeeper shell --servers zoo$number:2181 ls /; done
{BY_CLIENTS}
{PROBES}
""", tmp_path)
    assert "on two disks at least" in printed and '"leader_id"' in printed


def test_failure_drills(tmp_path):
    printed = page.run("cd $work\n" + "\n".join(PRACTICE), tmp_path)
    assert "status 1: damage was found" in printed and "it does not start" in printed
