// Data of znodes, as text and as hex, and how two differ.

import { el } from "./dom.js";

export const decode = (base64) => Uint8Array.from(atob(base64 ?? ""), (c) => c.charCodeAt(0));

export function encode(data) {
    let text = "";
    data.forEach((byte) => {
        text += String.fromCharCode(byte);
    });
    return btoa(text);
}

/** Text, if the bytes are UTF-8; nothing otherwise. */
export function text_of(data) {
    try {
        return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
    } catch {
        return null;
    }
}

export function hex(data) {
    const lines = [];
    for (let at = 0; at < data.length; at += 16) {
        const part = [...data.subarray(at, at + 16)];
        const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
        const letters = part
            .map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."))
            .join("");
        lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(48)} ${letters}`);
    }
    return lines.join("\n");
}

/** Lines that two texts do not share, with those they do around them: [mark, line]. */
function difference(before, after) {
    const [a, b] = [before.split("\n"), after.split("\n")];
    if (a.length * b.length > 4e6) {
        return [[" ", `${a.length} lines become ${b.length}`]];
    }
    const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i -= 1) {
        for (let j = b.length - 1; j >= 0; j -= 1) {
            common[i][j] =
                a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
        }
    }
    const lines = [];
    for (let i = 0, j = 0; i < a.length || j < b.length;) {
        if (i < a.length && j < b.length && a[i] === b[j]) {
            lines.push([" ", a[i]]);
            i += 1;
            j += 1;
        } else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) {
            lines.push(["-", a[i]]);
            i += 1;
        } else {
            lines.push(["+", b[j]]);
            j += 1;
        }
    }
    return lines;
}

export function shown_difference(before, after) {
    const lines = difference(before, after).map(([mark, line]) =>
        el("span", { class: { "+": "good", "-": "bad" }[mark] ?? null }, `${mark} ${line}\n`),
    );
    return el("pre", { "aria-label": "Difference" }, lines);
}
