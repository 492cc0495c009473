// The tree: children by pages, a znode with all it has, and its editors.

import { decode, encode, hex, shown_difference, text_of } from "./data.js";
import { bytes, count, el, moment, rows, table } from "./dom.js";
import { history_part } from "./history.js";
import { login, question } from "./server.js";

const PAGE = 100;
const LETTERS = [
    ["c", 4],
    ["d", 8],
    ["r", 1],
    ["w", 2],
    ["a", 16],
];
const QUOTA = "/zookeeper/quota";

const join = (parent, name) => (parent === "/" ? `/${name}` : `${parent}/${name}`);
const parent_of = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const link = (path, text) => el("a", { href: `#tree?path=${encodeURIComponent(path)}` }, text);
const wanted_path = () => new URLSearchParams(location.hash.split("?")[1]).get("path") ?? "/";

const VIEWS = {
    text: (data) => text_of(data) ?? "(no text: see hex)",
    JSON: (data) => {
        try {
            return JSON.stringify(JSON.parse(text_of(data)), null, 2);
        } catch {
            return "(no JSON)";
        }
    },
    hex,
};

const perms_text = (perms) =>
    LETTERS.filter(([, bit]) => perms & bit)
        .map(([letter]) => letter)
        .join("");
const acl_text = (acl) =>
    acl.map(({ scheme, id, perms }) => `${scheme}:${id}:${perms_text(perms)}`).join("\n");

/** Reads lines such as `digest:user:hash:cdrwa`. */
function parse_acl(text) {
    return text
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean)
        .map((line) => {
            const [, scheme, id, letters] = line.match(/^([^:]+):(.*):([cdrwa]+)$/) ?? [];
            if (!scheme) {
                throw new Error(`${line}: not of the form scheme:id:cdrwa`);
            }
            return {
                scheme,
                id,
                perms: LETTERS.reduce((sum, [letter, bit]) => sum + (letters.includes(letter) ? bit : 0), 0),
            };
        });
}

/** Changes one thing, and reads it again. What the server says is told. */
function changer(told, done) {
    return async (change) => {
        try {
            await question("change", change);
            told.className = "good";
            told.textContent = `${change.change} ${change.path}: done`;
            await done(change);
        } catch (error) {
            told.className = "bad";
            told.textContent =
                error.message === "BadVersion"
                    ? "Somebody else has changed it since it was read: read it again (key r)."
                    : `${change.change} ${change.path}: ${error.message}`;
        }
    };
}

function data_part(znode, change) {
    const data = decode(znode.data_base64);
    const text = text_of(data);
    const shown = el("pre", { tabindex: 0 });
    const view = el(
        "select",
        { "aria-label": "View", onchange: draw },
        Object.keys(VIEWS).map((name) =>
            el("option", { value: name, selected: text === null && name === "hex" }, name),
        ),
    );
    const part = el("section", {}, el("h3", {}, `Data (${bytes(data.length)})`));
    if (!znode.readable) {
        part.append(el("p", { class: "bad" }, "You may not read it."));
        return part;
    }
    part.append(el("div", { class: "bar" }, view), shown);
    draw();
    if (login().edits && text !== null) {
        const field = el("textarea", {
            rows: Math.min(20, text.split("\n").length + 2),
            "aria-label": "New data",
        });
        const review = el("div");
        field.value = text;
        field.addEventListener("input", () => review.replaceChildren());
        const save = () =>
            change({
                change: "setData",
                path: znode.path,
                version: znode.stat.version,
                data_base64: encode(new TextEncoder().encode(field.value)),
            });
        const compare = () =>
            review.replaceChildren(
                shown_difference(text, field.value),
                el(
                    "button",
                    { type: "button", onclick: save },
                    `set, if it still has version ${znode.stat.version}`,
                ),
            );
        part.append(
            el(
                "details",
                {},
                el("summary", {}, "edit"),
                field,
                el("div", { class: "bar" }, el("button", { type: "button", onclick: compare }, "compare")),
                review,
            ),
        );
    }
    function draw() {
        shown.textContent = data.length ? VIEWS[view.value](data) : "(none)";
    }
    return part;
}

function acl_part(znode, change) {
    const part = el("section", {}, el("h3", {}, "ACL"));
    if (!znode.acl) {
        part.append(el("p", { class: "bad" }, "You may not read it."));
        return part;
    }
    const body = el(
        "tbody",
        {},
        rows(znode.acl.map(({ scheme, id, perms }) => [scheme, { long: id }, perms_text(perms)])),
    );
    part.append(table(["scheme", "id", "may"], body));
    if (login().edits) {
        const field = el("textarea", { rows: znode.acl.length + 2, "aria-label": "New ACL" });
        const wrong = el("p", { class: "bad", role: "alert" });
        field.value = acl_text(znode.acl);
        const save = () => {
            try {
                wrong.textContent = "";
                return change({
                    change: "setAcl",
                    path: znode.path,
                    version: znode.stat.aversion,
                    acl: parse_acl(field.value),
                });
            } catch (error) {
                wrong.textContent = error.message;
                return null;
            }
        };
        part.append(
            el(
                "details",
                {},
                el("summary", {}, "edit"),
                field,
                wrong,
                el(
                    "div",
                    { class: "bar" },
                    el(
                        "button",
                        { type: "button", onclick: save },
                        `set, if it still has version ${znode.stat.aversion}`,
                    ),
                ),
            ),
        );
    }
    return part;
}

/** Limits as the server keeps them: `count=10,bytes=-1=;byteHardLimit=100`. */
function figures(text) {
    return new Map(
        [...(text ?? "").matchAll(/(count|bytes|countHardLimit|byteHardLimit)=(-?\d+)/g)].map(
            ([, key, value]) => [key, Number(value)],
        ),
    );
}

function quota_part(znode, change) {
    const limits = figures(znode.quota.limits);
    const use = figures(znode.quota.use);
    const part = el("section", {}, el("h3", {}, "Quota"));
    const limit = (soft, hard) => Math.max(limits.get(soft) ?? -1, limits.get(hard) ?? -1);
    for (const [name, soft, hard, show] of [
        ["znodes", "count", "countHardLimit", count],
        ["bytes", "bytes", "byteHardLimit", bytes],
    ]) {
        const most = limit(soft, hard);
        if (most >= 0) {
            const used = Math.max(0, use.get(soft) ?? 0);
            part.append(
                el(
                    "p",
                    {},
                    `${name}: ${show(used)} of ${show(most)} `,
                    el("meter", { max: most || 1, value: used, high: 0.8 * most }),
                ),
            );
        }
    }
    if (!limits.size) {
        part.append(el("p", { class: "faint" }, "This znode has no quota of its own."));
    }
    if (login().edits && znode.path !== "/" && !znode.path.startsWith("/zookeeper")) {
        part.append(quota_editor(znode, limits, change));
    }
    return part;
}

function quota_editor(znode, limits, change) {
    const fields = ["count", "bytes", "countHardLimit", "byteHardLimit"].map((key) => [
        key,
        el("input", {
            type: "number",
            min: -1,
            "aria-label": key,
            value: limits.get(key) ?? -1,
        }),
    ]);
    const save = async () => {
        const value = Object.fromEntries(fields.map(([key, field]) => [key, field.value || "-1"]));
        const hard = [
            value.byteHardLimit !== "-1" && `;byteHardLimit=${value.byteHardLimit}`,
            value.countHardLimit !== "-1" && `;countHardLimit=${value.countHardLimit}`,
        ];
        const some = hard.filter(Boolean).join("");
        const data_base64 = btoa(`count=${value.count},bytes=${value.bytes}${some && `=${some}`}`);
        const place = `${QUOTA}${znode.path}`;
        const acl = [{ scheme: "world", id: "anyone", perms: 31 }];
        if (znode.quota.limits !== null) {
            const { stat } = await question("znode", { path: `${place}/zookeeper_limits` });
            await change({
                change: "setData",
                path: `${place}/zookeeper_limits`,
                version: stat.version,
                data_base64,
            });
            return;
        }
        const parts = znode.path.slice(1).split("/");
        for (let i = 1; i <= parts.length; i += 1) {
            await question("change", {
                change: "create",
                path: `${QUOTA}/${parts.slice(0, i).join("/")}`,
                data_base64: "",
                acl,
            }).catch((error) => error.message === "NodeExists" || Promise.reject(error));
        }
        await question("change", {
            change: "create",
            path: `${place}/zookeeper_stats`,
            data_base64: btoa("count=0,bytes=0"),
            acl,
        }).catch((error) => error.message === "NodeExists" || Promise.reject(error));
        await change({ change: "create", path: `${place}/zookeeper_limits`, data_base64, acl });
    };
    const told = el("p", { class: "bad", role: "alert" });
    return el(
        "details",
        {},
        el("summary", {}, "edit"),
        el("p", { class: "faint" }, "-1 is no limit."),
        fields.map(([key, field]) => el("label", {}, key, field)),
        told,
        el(
            "div",
            { class: "bar" },
            el(
                "button",
                {
                    type: "button",
                    onclick: () =>
                        save().catch((error) => {
                            told.textContent = error.message;
                        }),
                },
                "set the quota",
            ),
        ),
    );
}

function others_part(znode, change) {
    if (!login().edits) {
        return null;
    }
    const name = el("input", { "aria-label": "Name of the child", placeholder: "name" });
    const data = el("input", { "aria-label": "Data of the child", placeholder: "data" });
    const create = () =>
        change({
            change: "create",
            path: join(znode.path, name.value),
            acl: znode.acl ?? [{ scheme: "auth", id: "", perms: 31 }],
            data_base64: encode(new TextEncoder().encode(data.value)),
        });
    const typed = el("input", {
        "aria-label": "The path once more",
        placeholder: znode.path,
        oninput: () => {
            remove.disabled = typed.value !== znode.path;
        },
    });
    const remove = el(
        "button",
        {
            type: "button",
            disabled: true,
            onclick: () =>
                change({
                    change: "delete",
                    path: znode.path,
                    version: znode.stat.version,
                }),
        },
        `delete, if it still has version ${znode.stat.version}`,
    );
    return el(
        "section",
        {},
        el(
            "details",
            {},
            el("summary", {}, "create a child, with this ACL"),
            el(
                "div",
                { class: "bar" },
                name,
                data,
                el("button", { type: "button", onclick: create }, "create"),
            ),
        ),
        el(
            "details",
            {},
            el("summary", {}, "delete"),
            el("p", { class: "faint" }, "Type the path to confirm."),
            el("div", { class: "bar" }, typed, remove),
        ),
    );
}

function stat_part({ stat }) {
    const owner = stat.ephemeral_owner_hex;
    const list = [
        ["version of the data", stat.version],
        ["version of the children", stat.cversion],
        ["version of the ACL", stat.aversion],
        ["created (UTC)", moment(stat.ctime)],
        ["modified (UTC)", moment(stat.mtime)],
        ["czxid", stat.czxid_hex],
        ["mzxid", stat.mzxid_hex],
        ["pzxid", stat.pzxid_hex],
        ["owner", owner ? `session ${owner}` : "none"],
        ["children", stat.num_children],
    ];
    return el(
        "section",
        {},
        el("h3", {}, "Stat"),
        table(["field", "value"], el("tbody", {}, rows(list.map(([k, v]) => [k, String(v)])))),
    );
}

export function screen() {
    const field = el("input", { type: "text", "aria-label": "Path", class: "path" });
    const form = el(
        "form",
        {
            class: "bar",
            onsubmit: (event) => {
                event.preventDefault();
                location.hash = `tree?path=${encodeURIComponent(field.value)}`;
            },
        },
        field,
        el("button", {}, "go"),
    );
    const crumbs = el("div", { class: "bar", "aria-label": "Where" });
    const search = el("input", {
        type: "search",
        placeholder: "names that contain (key /)",
        "aria-label": "Search",
        onchange: () => first(),
    });
    const where = el("span", { class: "faint", role: "status" });
    const before = el("button", { type: "button", onclick: () => turn(-1) }, "previous");
    const after = el("button", { type: "button", onclick: () => turn(1) }, "next");
    const body = el("tbody");
    const detail = el("div");
    const told = el("p", { role: "status" });
    let path = wanted_path();
    let marks = [""];
    let more = "";
    const change = changer(told, async (made) => {
        if (made.change === "delete") {
            location.hash = `tree?path=${encodeURIComponent(parent_of(made.path))}`;
        } else {
            await refresh();
        }
    });

    function first() {
        marks = [""];
        list();
    }

    function turn(pages) {
        if (pages > 0) {
            marks.push(more);
        } else {
            marks.pop();
        }
        list();
    }

    async function list() {
        const asked = { path, after: marks.at(-1), search: search.value, count: PAGE };
        const shown = await question("children", asked).catch((error) => {
            told.className = "bad";
            told.textContent = error.message;
        });
        if (!shown) {
            return;
        }
        body.replaceChildren(
            ...rows(
                shown.children.map(({ name, stat }) => [
                    link(join(path, name), name),
                    stat?.ephemeral_owner_hex ? "ephemeral" : "",
                    stat?.num_children ?? "",
                    stat?.data_length ?? "",
                    stat ? moment(stat.mtime) : "",
                ]),
            ),
        );
        more = shown.children.at(-1)?.name ?? "";
        before.disabled = marks.length === 1;
        after.disabled = !shown.more;
        const found = search.value ? `${count(shown.found)} found of ` : "";
        where.textContent = `page ${marks.length}, ${found}${count(shown.total)} children`;
    }

    async function refresh() {
        if (wanted_path() !== path) {
            path = wanted_path();
            marks = [""];
            search.value = "";
            told.textContent = "";
        }
        field.value = path;
        const names = path.split("/").filter(Boolean);
        crumbs.replaceChildren(
            link("/", "/"),
            ...names.map((name, i) => link(`/${names.slice(0, i + 1).join("/")}`, name)),
        );
        body.replaceChildren();
        detail.replaceChildren();
        try {
            const znode = await question("znode", { path });
            detail.replaceChildren(
                ...[
                    data_part(znode, change),
                    acl_part(znode, change),
                    quota_part(znode, change),
                    stat_part(znode),
                    history_part(znode),
                    others_part(znode, change),
                ].filter(Boolean),
            );
            await list();
        } catch (error) {
            where.textContent = "";
            detail.replaceChildren(
                el(
                    "p",
                    { class: "bad", role: "alert" },
                    { NoNode: "There is no such znode.", NoAuth: "You may not read it." }[error.message] ??
                        error.message,
                ),
            );
        }
    }

    return {
        every_ms: Infinity,
        element: el(
            "div",
            {},
            form,
            crumbs,
            told,
            el(
                "div",
                { class: "halves" },
                el(
                    "div",
                    {},
                    el("div", { class: "bar" }, search, before, after, where),
                    table(["name", "", "[children]", "[bytes]", "modified (UTC)"], body),
                ),
                detail,
            ),
        ),
        refresh,
    };
}
