// Drawings: a line over the last minutes, and a heat map.

import { el } from "./dom.js";
import { KEPT } from "./server.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 100;

/** A line with its name and its newest figure. `draw(values)` draws it anew. */
export class Line {
    constructor(name, show) {
        this.show = show;
        this.path = document.createElementNS(SVG, "path");
        const svg = document.createElementNS(SVG, "svg");
        svg.setAttribute("viewBox", `0 0 ${KEPT} ${HEIGHT}`);
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("aria-hidden", "true");
        svg.append(this.path);
        this.figure = el("b");
        this.most = el("span");
        this.element = el("figure", {}, el("figcaption", {}, this.figure, name, " ", this.most), svg);
    }

    draw(values) {
        const max = Math.max(...values, 0);
        const x = (i) => KEPT - values.length + i;
        const y = (value) => HEIGHT - 2 - (max ? value / max : 0) * (HEIGHT - 4);
        const points = values.map((value, i) => `${x(i)},${y(value).toFixed(1)}`);
        this.path.setAttribute("d", points.length ? `M${points.join("L")}` : "");
        this.figure.textContent = this.show(values.at(-1) ?? 0);
        this.most.textContent = `(at most ${this.show(max)})`;
    }
}

/** Cells over the last minutes, one a second, the newest at the right; `draw` takes shares from 0 to 1. */
export function heat() {
    const canvas = el("canvas", { width: KEPT, height: 1, "aria-hidden": "true" });
    return {
        canvas,
        draw(shares) {
            const paint = canvas.getContext("2d");
            const color = getComputedStyle(canvas).getPropertyValue("--heat").trim();
            const dark = getComputedStyle(canvas).colorScheme;
            paint.clearRect(0, 0, KEPT, 1);
            shares.forEach((share, i) => {
                paint.fillStyle = heated(color, dark, share);
                paint.fillRect(KEPT - shares.length + i, 0, 1, 1);
            });
        },
    };
}

/** `color` is "light-dark(R G B, R G B)", which a canvas does not understand. */
function heated(color, scheme, share) {
    const [light, dark] = color.match(/\d+ \d+ \d+/g);
    const is_dark =
        scheme === "dark" || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    return `rgb(${is_dark ? dark : light} / ${share})`;
}
