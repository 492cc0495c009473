"""The page `docs/operations.md`: a damaged log is repaired, and the programs say what the page shows."""

import re

from page import NEEDS, Page, run

pytestmark = NEEDS

TRANSCRIPT = Page("operations.md").block("Look into a folder, and repair it", "text")


def plain(text):
    """What does not depend on the numbers and on the width of the lines."""
    return " ".join(re.sub(r"\b(0x)?([0-9a-f]*[0-9][0-9a-f]*|[a-f]{8})\b", "N", text).split())


def test_a_damaged_log_is_repaired(tmp_path):
    said = dict(re.findall(r"^\$ ([^\n]*)\n(.*?)(?=^\$|\Z)", TRANSCRIPT, re.MULTILINE | re.DOTALL))
    serve, look, mend = said
    printed = run(f"""
{serve} 2> "$work/log" &
await ringkeeper shell create /a
for name in 1 2 3 4 5 6 7 8; do ringkeeper shell create /a/$name; done
ringkeeper snapshot take --data-dir /srv/rk
kill %1
wait
printf damaged! | dd of=$(echo /srv/rk/log.0*) bs=1 seek=8300 conv=notrunc status=none
# Each says by its status that it has found damage.
if {serve} 2>&1; then exit 1; fi
if {look}; then exit 1; fi
{mend}
""", tmp_path)
    for text in said.values():
        for part in plain(text).split("..."):
            assert part.strip() in plain(printed), printed
