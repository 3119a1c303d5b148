// A table that holds thousands of rows and draws the visible ones.

import { h, host, render, batched } from "./dom.js";

/**
 * @template R
 * @typedef {{ id: string, title: string, width: string, cell: (row: R) => import("./dom.js").Child,
 *   sort?: (row: R) => string | number, end?: boolean, wide?: boolean }} Column
 */
/**
 * `wide` columns are left out on narrow screens.
 * @template R
 * @typedef {{ label: string, rows: readonly R[], columns: Column<R>[], id: (row: R) => string, rowHeight?: number,
 *   selected?: string, onSelect?: (row: R) => void, tone?: (row: R) => string, empty?: import("./dom.js").Child,
 *   checked?: Set<string>, onCheck?: (ids: Set<string>) => void,
 *   sorted?: { by: string, down: boolean } }} TableProps
 */

const EXTRA = 6;

/**
 * @template R
 * @param {TableProps<R>} props
 * @param {string} [key]
 */
export function table(props, key) {
  return host(/** @type {(props: TableProps<R>) => Grid<R>} */ (createGrid), props, key);
}

/** @param {TableProps<any>} props */
function createGrid(props) {
  return new Grid(props);
}

/** @template R */
class Grid {
  /** @param {TableProps<R>} props */
  constructor(props) {
    this.props = props;
    this.node = document.createElement("div");
    this.node.className = "grid";
    /** @type {string | undefined} */
    this.active = props.selected;
    this.sorted = props.sorted;
    /** @type {readonly R[]} */
    this.rows = [];
    /** @type {Map<string, number>} */
    this.places = new Map();
    /** @type {string | undefined} */
    this.pressed = undefined;
    this.paint = batched(() => this.draw());
    this.node.addEventListener("scroll", this.paint, { passive: true });
    this.node.addEventListener("keydown", (event) => this.onKey(event));
    this.node.addEventListener("pointerdown", (event) => (this.pressed = rowOf(event)));
    this.node.addEventListener("click", (event) => this.onClick(event));
    this.resize = new ResizeObserver(this.paint);
    this.resize.observe(this.node);
    this.focusNext = false;
    this.arrange();
    this.draw();
    requestAnimationFrame(() => this.reveal());
  }

  /** Scroll to the selected row if it is not in view. */
  reveal() {
    const place = this.props.selected === undefined ? undefined : this.places.get(this.props.selected);
    if (place === undefined || !this.node.clientHeight) return;
    const top = place * this.height,
      view = this.node.clientHeight - 36;
    if (top < this.node.scrollTop || top + this.height > this.node.scrollTop + view)
      this.node.scrollTop = Math.max(0, top - view / 3);
    this.draw();
  }

  /** @param {TableProps<R>} props */
  update(props) {
    const same = props.rows === this.props.rows;
    const moved = props.selected !== undefined && props.selected !== this.props.selected;
    if (moved) this.active = props.selected;
    const anchor = same ? undefined : this.anchor();
    this.props = props;
    if (!same) this.arrange();
    this.draw();
    if (moved) this.reveal();
    else if (anchor) this.restore(anchor);
  }

  /** The first visible row, so that rows which arrive above it do not move what is being read. */
  anchor() {
    if (this.node.scrollTop < this.height) return undefined;
    const place = Math.floor(this.node.scrollTop / this.height);
    const row = this.rows[place];
    return row === undefined
      ? undefined
      : { id: this.props.id(row), offset: this.node.scrollTop - place * this.height };
  }

  /** @param {{ id: string, offset: number }} anchor */
  restore(anchor) {
    const place = this.places.get(anchor.id);
    if (place === undefined) return;
    const wanted = place * this.height + anchor.offset;
    if (Math.abs(wanted - this.node.scrollTop) < 1) return;
    this.node.scrollTop = wanted;
    this.draw();
  }

  dispose() {
    this.resize.disconnect();
  }

  get height() {
    return this.props.rowHeight ?? 44;
  }

  arrange() {
    const by = this.sorted && this.props.columns.find((column) => column.id === this.sorted?.by);
    this.rows = this.props.rows;
    if (by?.sort) {
      const value = by.sort,
        sign = this.sorted?.down ? -1 : 1;
      this.rows = [...this.rows].sort((one, other) => {
        const a = value(one),
          b = value(other);
        return a < b ? -sign : a > b ? sign : 0;
      });
    }
    this.places = new Map(this.rows.map((row, index) => [this.props.id(row), index]));
  }

  draw() {
    const { props, rows } = this;
    const tall = this.height;
    const top = Math.max(0, Math.floor((this.node.scrollTop - tall) / tall) - EXTRA);
    const shown = Math.ceil((this.node.clientHeight || 600) / tall) + 2 * EXTRA + 1;
    const bottom = Math.min(rows.length, top + shown);
    const check = props.onCheck !== undefined;
    const tracks = (check ? "36px " : "") + props.columns.map((column) => column.width).join(" ");
    const narrow =
      (check ? "36px " : "") +
      props.columns
        .filter((column) => !column.wide)
        .map((column) => column.width)
        .join(" ");
    this.node.style.setProperty("--tracks", tracks);
    this.node.style.setProperty("--tracks-narrow", narrow);
    this.node.style.setProperty("--row", `${tall}px`);
    this.node.style.setProperty("--tall", `${rows.length ? 38 + rows.length * tall : 130}px`);
    const focusable =
      this.active !== undefined && this.places.has(this.active)
        ? this.active
        : rows.length
          ? props.id(/** @type {R} */ (rows[0]))
          : undefined;
    const drawn = [];
    for (let index = top; index < bottom; index++)
      drawn.push(this.row(/** @type {R} */ (rows[index]), index, focusable));
    // A row that has the focus stays in the page while it is scrolled out of view.
    const held = focusable === undefined ? -1 : (this.places.get(focusable) ?? -1);
    if (held >= bottom) drawn.push(this.row(/** @type {R} */ (rows[held]), held, focusable));
    else if (held >= 0 && held < top) drawn.unshift(this.row(/** @type {R} */ (rows[held]), held, focusable));
    render(
      this.node,
      h(
        "div",
        {
          class: "grid-table",
          role: "grid",
          "aria-label": props.label,
          "aria-rowcount": rows.length + 1,
          "aria-multiselectable": check ? "true" : null,
        },
        h(
          "div",
          { class: "grid-head", role: "row", "aria-rowindex": 1 },
          check && this.checkAll(),
          props.columns.map((column) => this.head(column)),
        ),
        rows.length
          ? h("div", { class: "grid-body", role: "rowgroup", css: { height: `${rows.length * tall}px` } }, drawn)
          : h(
              "div",
              { class: "grid-none", role: "row" },
              h("div", { role: "gridcell" }, props.empty ?? "Nothing matches."),
            ),
      ),
    );
    if (this.focusNext) {
      this.focusNext = false;
      /** @type {HTMLElement | null} */ (this.node.querySelector('.grid-row[tabindex="0"]'))?.focus({
        preventScroll: true,
      });
    }
  }

  checkAll() {
    const { props, rows } = this;
    const checked = props.checked ?? new Set();
    const some = rows.some((row) => checked.has(props.id(row)));
    const all = some && rows.every((row) => checked.has(props.id(row)));
    return h(
      "div",
      { class: "grid-check", role: "columnheader" },
      h("input", {
        type: "checkbox",
        "aria-label": "Select all that are listed",
        prop: { checked: all, indeterminate: some && !all },
        on: { change: () => props.onCheck?.(all ? new Set() : new Set(rows.map((row) => props.id(row)))) },
      }),
    );
  }

  /** @param {Column<R>} column */
  head(column) {
    const active = this.sorted?.by === column.id;
    const state = active ? (this.sorted?.down ? "descending" : "ascending") : "none";
    const name = `${column.end ? "end " : ""}${column.wide ? "wide " : ""}`;
    if (!column.sort) return h("div", { class: name, role: "columnheader" }, column.title);
    return h(
      "div",
      { class: name, role: "columnheader", "aria-sort": state },
      h(
        "button",
        { class: "sort", type: "button", on: { click: () => this.sortBy(column.id) } },
        column.title,
        h("span", { class: "sort-mark", "aria-hidden": "true" }, active ? (this.sorted?.down ? "↓" : "↑") : ""),
      ),
    );
  }

  /** @param {string} id */
  sortBy(id) {
    if (this.sorted?.by !== id) this.sorted = { by: id, down: false };
    else if (!this.sorted.down) this.sorted = { by: id, down: true };
    else this.sorted = undefined;
    this.arrange();
    this.draw();
  }

  /** @param {R} row @param {number} index @param {string | undefined} focusable */
  row(row, index, focusable) {
    const { props } = this;
    const id = props.id(row);
    const selected = id === props.selected;
    const checked = props.checked?.has(id) ?? false;
    return h(
      "div",
      {
        key: id,
        class: `grid-row ${props.tone?.(row) ?? ""}${index % 2 ? " odd" : ""}`,
        role: "row",
        "data-id": id,
        "aria-rowindex": index + 2,
        "aria-selected": props.onSelect || props.onCheck ? String(selected || checked) : null,
        "data-current": selected || null,
        tabindex: id === focusable ? "0" : "-1",
        css: { transform: `translateY(${index * this.height}px)` },
      },
      props.onCheck &&
        h(
          "div",
          {
            class: "grid-check",
            role: "gridcell",
            on: { click: (/** @type {Event} */ event) => event.stopPropagation() },
          },
          h("input", {
            type: "checkbox",
            tabindex: "-1",
            "aria-label": `Select ${id}`,
            prop: { checked },
            on: { change: () => this.toggle(id) },
          }),
        ),
      props.columns.map((column) =>
        h(
          "div",
          { class: `${column.end ? "end " : ""}${column.wide ? "wide" : ""}`, role: "gridcell" },
          column.cell(row),
        ),
      ),
    );
  }

  /** @param {string} id */
  toggle(id) {
    const next = new Set(this.props.checked);
    if (!next.delete(id)) next.add(id);
    this.props.checked = next; // another row may be checked before the next paint
    this.props.onCheck?.(next);
  }

  /** Open the row on which the button was pressed: rows that arrive may have moved it since. @param {MouseEvent} event */
  onClick(event) {
    const id = rowOf(event) ?? (getSelection()?.isCollapsed ? this.pressed : undefined);
    this.pressed = undefined;
    const row = this.rows[this.places.get(id ?? "") ?? -1];
    if (id === undefined || row === undefined) return;
    this.active = id;
    this.props.onSelect?.(row);
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!target.classList.contains("grid-row")) return;
    const id = target.dataset["id"] ?? "";
    const place = this.places.get(id) ?? 0;
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 2);
    const last = this.rows.length - 1;
    /** @type {Record<string, number>} */
    const moves = {
      ArrowDown: place + 1,
      ArrowUp: place - 1,
      Home: 0,
      End: last,
      PageDown: place + page,
      PageUp: place - page,
    };
    const row = this.rows[place];
    if (event.key in moves) this.moveTo(Math.min(last, Math.max(0, /** @type {number} */ (moves[event.key]))));
    else if (event.key === "Enter" && row) this.props.onSelect?.(row);
    else if (event.key === " ") this.props.onCheck ? this.toggle(id) : row && this.props.onSelect?.(row);
    else return;
    event.preventDefault();
  }

  /** @param {number} place */
  moveTo(place) {
    const row = this.rows[place];
    if (row === undefined) return;
    this.active = this.props.id(row);
    const top = place * this.height;
    const view = this.node.clientHeight - this.height;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + this.height > this.node.scrollTop + view) this.node.scrollTop = top + this.height - view;
    this.focusNext = true;
    this.draw();
  }
}

/** The id of the row of an event; none if it is at the checkbox of the row. @param {Event} event */
function rowOf(event) {
  const row = event.target instanceof Element ? event.target.closest(".grid-check, .grid-row") : null;
  return row instanceof HTMLElement ? row.dataset["id"] : undefined;
}
