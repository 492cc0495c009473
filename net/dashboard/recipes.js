// Locks, elections and barriers, recognised by the names of ephemerals: who holds, who waits, since when.

import { el, moment, Pages, rows, session, table } from "./dom.js";
import { ask, question } from "./server.js";

/** Kinds by the part of the name in front of the counter, the more special first: kazoo's and Curator's. */
const KINDS = [
    ["read-write lock", /__(?:rlock|READ|WRIT)__\d{10}$/],
    ["semaphore", /-lease-\d{10}$/],
    ["election", /-latch-\d{10}$/],
    ["lock or election", /(?:__lock__|-lock-|lock-|x-|n_)\d{10}$/],
    ["queue of ephemerals", /\d{10}$/],
];

/** How many members are asked for their data. */
const ASKED = 20;

const counter = (name) => name.slice(-10);
const reads = (name) => /__(?:rlock|READ)__\d{10}$/.test(name);

/** Parents of ephemerals: [path, [[name, session]]]. */
function parents(ephemerals) {
    const found = new Map();
    for (const [owner, paths] of Object.entries(ephemerals)) {
        for (const path of paths) {
            const cut = path.lastIndexOf("/");
            const parent = path.slice(0, cut) || "/";
            found.set(parent, [...(found.get(parent) ?? []), [path.slice(cut + 1), session(owner)]]);
        }
    }
    return [...found];
}

/** The kind of what is at a parent, if it is one of those known; barriers need its other children. */
function kind_of(members) {
    return KINDS.find(([, pattern]) => members.every(([name]) => pattern.test(name)))?.[0];
}

/** Whether the member at this place of the line is in. */
function holds(kind, line, place) {
    if (kind === "read-write lock" && reads(line[place][0])) {
        return line.slice(0, place).every(([name]) => reads(name));
    }
    return kind === "semaphore" ? null : place === 0;
}

async function look(path, members) {
    const kind = kind_of(members);
    const shown = await question("children", { path, count: 1000 }).catch(() => ({ children: [] }));
    const stats = new Map(shown.children.map(({ name, stat }) => [name, stat]));
    if (!kind) {
        return {
            path,
            kind: stats.has("ready") && members.length ? "double barrier, entered" : null,
            line: members,
            stats,
        };
    }
    return { path, kind, line: members.toSorted(([a], [b]) => counter(a).localeCompare(counter(b))), stats };
}

async function who(path, name) {
    const shown = await question("znode", { path: `${path === "/" ? "" : path}/${name}` }).catch(() => null);
    const text = atob(shown?.data_base64 ?? "");
    return /^[\x20-\x7e]*$/.test(text) ? text : "";
}

function state_of({ kind, line }, place) {
    const is_in = holds(kind, line, place);
    if (kind.startsWith("double barrier")) {
        return "is in";
    }
    if (is_in === null) {
        return "in line";
    }
    return is_in
        ? el("b", { class: "good" }, kind === "election" ? "leads" : "holds")
        : `waits for ${line[place - 1][1]}`;
}

export function screen() {
    const pages = new Pages(
        ["path", "kind", "[members]", "first in line", "in line since (UTC)"],
        (it) => [
            el("a", { href: `#recipes?path=${encodeURIComponent(it.path)}` }, it.path),
            it.kind,
            it.line.length,
            it.line[0][1],
            since(it, 0),
        ],
        (it) => `${it.path} ${it.kind} ${it.line.map(([, owner]) => owner).join(" ")}`,
        50,
    );
    const body = el("tbody");
    const title = el("h3");
    const detail = el(
        "div",
        { hidden: true },
        title,
        table(["[place]", "state", "session", "what its znode says", "in line since (UTC)", "znode"], body),
    );

    function since(it, place) {
        const stat = it.stats.get(it.line[place][0]);
        return stat ? moment(stat.ctime) : "";
    }

    return {
        every_ms: 3000,
        element: el("div", {}, pages.element, detail),
        async refresh() {
            const { session_id_to_ephemeral_paths } = await ask("dump");
            const candidates = parents(session_id_to_ephemeral_paths);
            const sorted = candidates.sort(([a], [b]) => a.localeCompare(b)).slice(0, 200);
            const found = [];
            for (const [path, members] of sorted) {
                found.push(await look(path, members));
            }
            const known = found.filter(({ kind }) => kind);
            pages.set(known);
            const wanted = new URLSearchParams(location.hash.split("?")[1]).get("path");
            const chosen = known.find(({ path }) => path === wanted);
            detail.hidden = !chosen;
            if (chosen) {
                const says = [];
                // One after the other: the server answers few at once.
                for (const [name] of chosen.line.slice(0, ASKED)) {
                    says.push(await who(chosen.path, name));
                }
                title.textContent = `${chosen.path}: ${chosen.kind}`;
                body.replaceChildren(
                    ...rows(
                        chosen.line.map(([name, owner], place) => [
                            place + 1,
                            state_of(chosen, place),
                            owner,
                            says[place] ?? "",
                            since(chosen, place),
                            { long: name },
                        ]),
                    ),
                );
            }
        },
    };
}
