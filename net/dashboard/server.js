// What the server tells: its commands as JSON, and its metrics of the last minutes.

/** How long the metrics and facts may take, which are asked for first, before they are asked for again. */
const FIRST_ANSWER_MAX_MS = 10_000;

/** The same for all that may be long or is read from a disk: a little more than the server gives itself. */
const ANSWER_MAX_MS = 40_000;

let facts;

async function answer(path, max_ms) {
    const response = await fetch(path, {
        headers: { Accept: "application/json, text/plain" },
        cache: "no-store",
        signal: AbortSignal.timeout(max_ms),
    });
    if (!response.ok && !response.headers.get("content-type")?.includes("json")) {
        throw new Error(`${response.status}: ${(await response.text()).trim()}`);
    }
    return response;
}

/** What is constant, asked for once. */
export async function constants() {
    facts ??= await (await answer("facts", FIRST_ANSWER_MAX_MS)).json();
    return facts;
}

/** The answer to a command of the admin listener. */
export async function ask(command) {
    const { commands } = await constants();
    // A proxy may have put something in front of the listener's paths.
    const base = location.pathname.replace(/\/dashboard\/.*$/, "");
    const shown = await (await answer(`${base}${commands}/${command}`, ANSWER_MAX_MS)).json();
    if (shown.error) {
        throw new Error(shown.error);
    }
    return shown;
}

/** Who is logged in. The header says so with each question; without a user the address alone counts. */
const NOBODY = { header: "ip", user: null, is_super: false, edits: false };
let logged_in = NOBODY;

export const login = () => logged_in;

export function log_out() {
    logged_in = NOBODY;
}

/** Asks who somebody is by these credentials. */
export async function log_in(user, password) {
    // So the header of the listener has it; a colon ends the user.
    if (!/^[\x21-\x7e]+$/.test(user + password) || user.includes(":")) {
        throw new Error(
            "The listener takes letters of ASCII alone, without spaces, and no colon in the user.",
        );
    }
    const before = logged_in;
    logged_in = { ...NOBODY, header: `digest ${user}:${password}`, user };
    try {
        const told = await question("login");
        logged_in = { ...logged_in, is_super: told.super, edits: told.edits };
    } catch (error) {
        logged_in = before;
        throw error;
    }
}

/** Asks about the tree, or changes it, as who is logged in. A page from elsewhere cannot send this header. */
export async function question(name, body = {}) {
    const headers = { Authorization: logged_in.header, "Content-Type": "application/json" };
    const response = await fetch(name, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
        cache: "no-store",
        // What becomes of a change has to be awaited.
        signal: name === "change" ? null : AbortSignal.timeout(ANSWER_MAX_MS),
    });
    if (!response.ok) {
        const refusal = await response.json().catch(() => ({ error: `status ${response.status}` }));
        throw new Error(refusal.error);
    }
    return response.json();
}

/** How many samples of the metrics are kept, one a second. */
export const KEPT = 180;

/** The oldest first: { at_ms, values }, in which a name with its labels has its figure. */
export const samples = [];

/** Takes a sample. After a restart of the server the older ones are of no use. */
export async function sample() {
    const text = await (await answer("../metrics", FIRST_ANSWER_MAX_MS)).text();
    const values = new Map();
    for (const line of text.split("\n")) {
        const end = line.lastIndexOf(" ");
        if (end > 0 && !line.startsWith("#")) {
            values.set(line.slice(0, end), Number(line.slice(end + 1)));
        }
    }
    const last = samples.at(-1);
    if (last && last.values.get("process_start_time_seconds") !== values.get("process_start_time_seconds")) {
        samples.length = 0;
    }
    samples.push({ at_ms: performance.now(), values });
    if (samples.length > KEPT) {
        samples.shift();
    }
}

/** The newest figure. */
export function now(name) {
    return samples.at(-1)?.values.get(name) ?? 0;
}

/** For each second how much was added to all counters whose names `counts` accepts, the oldest first. */
export function rates(counts) {
    const names = [...(samples.at(-1)?.values.keys() ?? [])].filter(counts);
    const sum = ({ values }) => names.reduce((total, name) => total + (values.get(name) ?? 0), 0);
    const sums = samples.map(sum);
    return sums.slice(1).map((after, i) => {
        const passed_s = (samples[i + 1].at_ms - samples[i].at_ms) / 1000;
        return Math.max(0, after - sums[i]) / passed_s;
    });
}

/**
 * A histogram over time: { bounds, columns }. Bounds are in seconds, the last is infinite; a column has for
 * each of them how many were counted in one interval.
 */
export function histogram(family, label) {
    const by_bound = new Map();
    for (const name of samples.at(-1)?.values.keys() ?? []) {
        if (name.startsWith(`${family}_bucket{`) && name.includes(label)) {
            const text = name.match(/le="([^"]+)"/)[1];
            const bound = text === "+Inf" ? Infinity : Number(text);
            by_bound.set(bound, [...(by_bound.get(bound) ?? []), name]);
        }
    }
    const bounds = [...by_bound.keys()].sort((a, b) => a - b);
    const totals = samples.map(({ values }) =>
        bounds.map((bound) => by_bound.get(bound).reduce((sum, name) => sum + (values.get(name) ?? 0), 0)),
    );
    const columns = totals.slice(1).map((after, i) => {
        const added = after.map((total, j) => total - totals[i][j]);
        return added.map((total, j) => Math.max(0, total - (added[j - 1] ?? 0)));
    });
    return { bounds, columns };
}

/** The bound below which the given share of what was counted lies; NaN if nothing was. */
export function quantile({ bounds, columns }, share) {
    const sums = bounds.map((_, j) => columns.reduce((sum, column) => sum + column[j], 0));
    const wanted = sums.reduce((a, b) => a + b, 0) * share;
    let seen = 0;
    return wanted ? bounds[sums.findIndex((sum) => (seen += sum) >= wanted)] : NaN;
}
