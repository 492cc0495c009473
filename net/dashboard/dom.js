// Elements of the page. Text is always set as text: names and data of znodes come from anybody.

/** An element. Attributes whose names begin with "on" are listeners; false and null ones are left out. */
export function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on")) {
            element.addEventListener(name.slice(2), value);
        } else if (value !== null && value !== false && value !== undefined) {
            element.setAttribute(name, value === true ? "" : value);
        }
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
}

export function card(name, value, mood = "") {
    return el(
        "div",
        { class: "card" },
        el("span", { class: "faint" }, name),
        el("b", { class: mood }, String(value)),
    );
}

/** Rows of a table; a cell is a text, a number, an element, or { long: text } for one that may be broken. */
export function rows(list) {
    return list.map((cells) =>
        el(
            "tr",
            {},
            cells.map((cell) => {
                if (cell?.long !== undefined) {
                    return el("td", { class: "long" }, cell.long);
                }
                const number = typeof cell === "number";
                return el("td", { class: number ? "number" : null }, number ? count(cell) : (cell ?? ""));
            }),
        ),
    );
}

/** A table; its body is filled by `rows`. Heads in brackets are those of numbers. */
export function table(heads, body) {
    const head = heads.map((name) => {
        const number = name.startsWith("[");
        return el("th", { class: number ? "number" : null, scope: "col" }, number ? name.slice(1, -1) : name);
    });
    return el(
        "div",
        { class: "scroll", tabindex: 0 },
        el("table", {}, el("thead", {}, el("tr", {}, head)), body),
    );
}

/**
 * A list that may be long, by pages, with a field that searches in all of it. `cells` makes the cells of an
 * entry, `text` what is searched.
 */
export class Pages {
    constructor(heads, cells, text, size = 100) {
        Object.assign(this, { cells, text, size, list: [], page: 0, body: el("tbody") });
        this.search = el("input", {
            type: "search",
            placeholder: "search (key /)",
            "aria-label": "Search",
            oninput: () => this.turn(-this.page),
        });
        this.before = el("button", { type: "button", onclick: () => this.turn(-1) }, "previous");
        this.after = el("button", { type: "button", onclick: () => this.turn(1) }, "next");
        this.where = el("span", { class: "faint", role: "status" });
        this.element = el(
            "div",
            {},
            el("div", { class: "bar" }, this.search, this.before, this.after, this.where),
            table(heads, this.body),
        );
    }

    set(list) {
        this.list = list;
        this.turn(0);
    }

    turn(pages) {
        const wanted = this.search.value.toLowerCase();
        const found = wanted
            ? this.list.filter((entry) => this.text(entry).toLowerCase().includes(wanted))
            : this.list;
        const last = Math.max(0, Math.ceil(found.length / this.size) - 1);
        this.page = Math.min(Math.max(0, this.page + pages), last);
        const first = this.page * this.size;
        const shown = found.slice(first, first + this.size);
        this.body.replaceChildren(...rows(shown.map(this.cells)));
        this.before.disabled = this.page === 0;
        this.after.disabled = this.page === last;
        const range = shown.length ? `${count(first + 1)} to ${count(first + shown.length)} of ` : "";
        this.where.textContent = range + count(found.length);
    }
}

export function count(number) {
    return Number.isInteger(number)
        ? number.toLocaleString("en")
        : number.toLocaleString("en", { maximumFractionDigits: 2 });
}

export function bytes(number) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    for (; number >= 1024 && unit < units.length - 1; unit += 1) {
        number /= 1024;
    }
    return `${number.toFixed(unit && number < 100 ? 1 : 0)} ${units[unit]}`;
}

/** A time span in the unit that suits it. */
export function seconds(number) {
    if (!Number.isFinite(number)) {
        return number === Infinity ? "more" : "-";
    }
    for (const [unit, name] of [
        [86400, "d"],
        [3600, "h"],
        [60, "min"],
        [1, "s"],
        [1e-3, "ms"],
    ]) {
        if (number >= unit) {
            return `${Number((number / unit).toPrecision(3))} ${name}`;
        }
    }
    return number ? `${Number((number * 1e6).toPrecision(3))} us` : "0";
}

export function moment(ms) {
    return new Date(ms)
        .toISOString()
        .replace("T", " ")
        .replace(/\.000Z|Z/, "");
}

/** A session as the server's log names it; the number comes as a text, since JavaScript would round it. */
export function session(decimal) {
    return `0x${BigInt.asUintN(64, BigInt(decimal)).toString(16)}`;
}
