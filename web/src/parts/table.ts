// What a table shows, sorted and filtered. Pure, so that five thousand rows are a matter of a test and not of a browser.

export interface Column<T> {
  key: string;
  title: string;
  /** What it is sorted and found by. */
  value: (row: T) => string | number;
  /** What is shown, if that is something else. */
  text?: (row: T) => string;
  /** CSS width; the rest share what is left. */
  width?: string;
  align?: "end";
  /** Left out where there is little room. */
  wideOnly?: boolean;
}

export interface Order {
  key: string;
  descending: boolean;
}

/** `name`, or `-name` for descending, as it stands in the address of the page. */
export function readOrder(text: unknown, columns: readonly { key: string }[], standard: Order): Order {
  if (typeof text !== "string" || text === "") return standard;
  const descending = text.startsWith("-");
  const key = descending ? text.slice(1) : text;
  return columns.some((one) => one.key === key) ? { key, descending } : standard;
}

export const writeOrder = (order: Order) => (order.descending ? "-" : "") + order.key;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export function compare(one: string | number, other: string | number): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return collator.compare(String(one), String(other));
}

/** Rows that say every word of the filter somewhere. */
export function filtered<T>(rows: readonly T[], columns: readonly Column<T>[], filter: string): T[] {
  const wanted = filter.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (wanted.length === 0) return [...rows];
  return rows.filter((row) => {
    const said = columns.map((column) => (column.text ?? column.value)(row)).join("\n").toLowerCase();
    return wanted.every((word) => said.includes(word));
  });
}

/** Rows that are equal stay in the order of their ids, so that nothing jumps about when something else changes. */
export function sorted<T>(rows: readonly T[], columns: readonly Column<T>[], order: Order, idOf: (row: T) => string): T[] {
  const column = columns.find((one) => one.key === order.key);
  const keyed = rows.map((row) => ({ row, key: column ? column.value(row) : "", id: idOf(row) }));
  const sign = order.descending ? -1 : 1;
  keyed.sort((one, other) => sign * compare(one.key, other.key) || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0));
  return keyed.map((one) => one.row);
}

/** Which rows are drawn, with some above and below so that scrolling shows no gaps. */
export function visible(count: number, rowHeight: number, top: number, height: number, spare = 8): { from: number; to: number } {
  const from = Math.max(0, Math.floor(top / rowHeight) - spare);
  const to = Math.min(count, Math.ceil((top + height) / rowHeight) + spare);
  return { from: Math.min(from, Math.max(0, to)), to };
}
